"""A model whose parameters are given each time that it is used.

`torch.func.functional_call` puts them into the one model for the time of a call, so two threads could not call it at
once; and it looks up each parameter by its name anew. Here every call gets modules of its own, and shares all tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


class _Part(NamedTuple):
    """A module to be made anew. parameters: names of its parameters that are replaced, with their places among all of
    those; parts: names of the modules below it that are made anew, with their places among the parts."""

    module: nn.Module
    parameters: tuple[tuple[str, int], ...]
    parts: tuple[tuple[str, int], ...]


class Skeleton(Generic[Model]):
    """A model, and which of its modules must be made anew where some of its parameters are replaced.

    parameters: which are to be replaced, in the order in which tensors will be given for them. The model is left alone;
    its buffers and all its other modules are shared by whatever is made from it.
    """

    def __init__(self, model: Model, parameters: Sequence[Tensor]) -> None:
        self.model = model
        self._parts: list[_Part] = []
        self._add(model, {id(parameter): place for place, parameter in enumerate(parameters)}, {})

    def filled(self, tensors: Sequence[Tensor]) -> Model:
        """The model with these for its parameters, which are not copied. Any thread may call it at any time."""
        made: list[nn.Module] = []
        for module, parameters, parts in self._parts:
            # By hand, since this is done for every batch: a deep copy would take longer than a small forward.
            copy = object.__new__(type(module))
            state = vars(copy)
            state.update(vars(module))
            _replace(state, "_parameters", parameters, tensors)
            _replace(state, "_modules", parts, made)
            made.append(copy)
        return cast(Model, made[-1])

    def _add(self, module: nn.Module, places: Mapping[int, int], seen: dict[int, int | None]) -> int | None:
        """Adds a module after those below it; returns its place among the parts, or None if it needs no copy.

        seen: what it returned for other modules, by their id, since blocks may share one.
        """
        if id(module) not in seen:
            children = [(name, child) for name, child in module._modules.items() if child is not None]
            below = [(name, self._add(child, places, seen)) for name, child in children]
            parts = tuple((name, place) for name, place in below if place is not None)
            own = tuple((name, places[id(value)]) for name, value in module._parameters.items() if id(value) in places)
            needed = bool(own or parts) or module is self.model
            seen[id(module)] = len(self._parts) if needed else None
            if needed:
                self._parts.append(_Part(module, own, parts))
        return seen[id(module)]


def _replace(state: dict[str, Any], key: str, names: tuple[tuple[str, int], ...], values: Sequence[object]) -> None:
    """Gives a module's state a dictionary of its own under the key, with other values under these names."""
    if names:
        state[key] = changed = state[key].copy()
        for name, place in names:
            changed[name] = values[place]
