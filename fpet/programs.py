"""A model's blocks as programs of TorchScript, which compute without Python's lock.

In Python a forward takes the interpreter's lock anew after every operator, and waits while forwards in other threads
have it, or whatever else the process does. A program takes it when it ends. Blocks that are alike share one, whatever
model they are of, since it is given their tensors: few are made, each in the time of a few blocks.

TorchScript is deprecated, but the only way that torch has to compute without the lock: AOTInductor keeps it
(pytorch/pytorch issue 197516). Where the environment's PYTORCH_JIT=0 turns it off, there are no programs.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.jit import TracerWarning, optimized_execution  # type: ignore[attr-defined]

from fpet.adapters.base import BlockAdapter
from fpet.block import adapted_block
from fpet.comparison import beyond_rounding
from fpet.errors import UnsupportedError
from fpet.reducers.base import BlockReducer
from fpet.skeleton import Skeleton
from fpet.task_weights import Place, lay_out
from fpet.tokens import Tokens
from fpet.vit import AdaptedViT

Script = Callable[..., Any]

# TorchScript never forgets what it has made, most of a megabyte a program; tasks of a family need about ten.
_MOST = 512
_COMPARED = 4096  # numbers of a buffer; of two larger ones no program is the same
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = "_forward_pre_hooks", "_forward_hooks"


class Batch(NamedTuple):
    """Images [B, 3, H, W], the model that they are for, and the memory [P] or [B, P] of those parameters that programs
    are given, if there are any. The model computes what is before its first block and behind its last alone."""

    model: AdaptedViT
    images: Tensor
    sites: Tensor | None = None


class Programs:
    """The programs of a model's blocks, and one that calls them in their order. Any thread may call the methods.

    model: in evaluation mode; given: those of its parameters that each batch has memory of its own for, laid out as
    `lay_out` does; examples: batches to try, with the model's own answers, by the first of which programs are made
    where there are none. They compute batches of any size.

    Raises:
        UnsupportedError: if they cannot be made, or answer otherwise than the model.
    """

    def __init__(self, model: AdaptedViT, given: Sequence[Tensor], examples: Sequence[tuple[Batch, Tensor]]) -> None:
        self._places = lay_out([parameter.shape for parameter in given])
        order = {id(parameter): index for index, parameter in enumerate(given)}
        blocks = zip(cast(Any, model.vit).blocks, model.adapter.blocks, model.reducer.blocks, strict=True)
        with torch.inference_mode():
            try:
                steps = [_Step(_Site(*parts), order) for parts in blocks]
                frozen = [parameter for step in steps for parameter in step.frozen]
                self._script = self._make(steps, frozen, examples[0][0])
                self._frozen = _held(frozen)
                for batch, answers in examples:
                    self._check(batch, answers)
            except Exception as error:  # whatever torch, or a foreign method, raises
                reason = str(error).partition("\n")[0]
                raise UnsupportedError(f"no program of TorchScript can be made of the model: {reason}") from error

    def features(self, batch: Batch) -> Tensor:
        """Pooled embeddings [B, C], without a gradient."""
        tokens = Tokens(batch.model.embed(batch.images), None)
        tokens = _run(self._script, tokens, self._frozen, *_sites(batch))
        return batch.model.pool(batch.model.norm(tokens))

    def _make(self, steps: Sequence[_Step], frozen: Sequence[Tensor], batch: Batch) -> Script:
        first = tokens = Tokens(batch.model.embed(batch.images), None)
        given = [place.of(sites) for sites in _sites(batch) for place in self._places]
        links = []
        for step in steps:
            tensors = _tensors(step.given, given, iter(step.frozen))
            links.append(_link(step, tokens, tensors))
            tokens = _run(links[-1].script, tokens, tensors)
        return _chain(links, self._places, first, frozen, *_sites(batch))

    def _check(self, batch: Batch, answers: Tensor) -> None:
        wrong = beyond_rounding(self.features(batch), answers, batch.images.dtype)
        if wrong is not None:
            raise UnsupportedError(f"its answers differ by {wrong:.2g}")


def _sites(batch: Batch) -> tuple[Tensor, ...]:
    """What a program is given of it beside tokens."""
    return () if batch.sites is None else (batch.sites,)


def _tensors(places: Sequence[int | None], given: Sequence[Tensor], frozen: Iterator[Tensor]) -> list[Tensor]:
    """A block's parameters: those that are given, by where they are among them, and its own, in their order."""
    return [next(frozen) if place is None else given[place] for place in places]


class _Site(nn.Module):
    """A block with what acts in it."""

    def __init__(self, block: nn.Module, adapter: nn.Module, reduce: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.adapter = cast(BlockAdapter, adapter)
        self.reduce = cast(BlockReducer, reduce)
        self.drop_path = nn.Identity()

    def forward(self, tokens: Tokens) -> Tokens:
        return adapted_block(self.block, self.adapter, self.reduce, self.drop_path, tokens)


class _Step:
    """A block, and its parameters: where they are among those that each batch gives, by `order`, or else themselves."""

    def __init__(self, site: _Site, order: Mapping[int, int]) -> None:
        self.site = site
        self.parameters = list(site.parameters())
        self.given = tuple(order.get(id(parameter)) for parameter in self.parameters)
        self.frozen = [one for one, place in zip(self.parameters, self.given, strict=True) if place is None]
        own = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        ties = tuple(own[id(each)] for _, each in site.named_parameters(remove_duplicate=False))
        self.kind: Hashable = (_described(site), ties)


def _described(module: nn.Module) -> Hashable:
    """All that a program of the module depends on, but for the numbers in its parameters."""
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise UnsupportedError(f"a hook is on a {type(module).__name__}, which a program would not call")
    own = {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE} | module._buffers
    parameters = [(name, None if one is None else tuple(one.shape)) for name, one in module._parameters.items()]
    below = [(name, None if one is None else _described(one)) for name, one in module._modules.items()]
    values = [(name, _comparable(value)) for name, value in own.items()]
    return type(module), module.training, tuple(values), tuple(parameters), tuple(below)


def _comparable(value: object) -> Hashable:
    """What two values have in common that are the same to a program."""
    if isinstance(value, Tensor) and value.numel() <= _COMPARED:
        return value.dtype, value.device, tuple(value.shape), tuple(value.flatten().tolist())
    if isinstance(value, Hashable) and not isinstance(value, Tensor):
        return type(value), value
    return id(value)


class _Link(NamedTuple):
    """A program of a block, and where its parameters are among those that a batch gives; None for those of its own."""

    key: Hashable
    script: Script
    given: tuple[int | None, ...]


# By all that they depend on; with each the block that it was made of, since objects must stay whose identities count.
_made: dict[Hashable, tuple[Script, _Site | None]] = {}
_alone = threading.Lock()


def _link(step: _Step, tokens: Tokens, tensors: Sequence[Tensor]) -> _Link:
    """What was made of such a block before, or else is now, by tokens and tensors that it may be given."""
    x, size = tokens
    key = step.kind, x.device, x.dtype, size is None, tuple((one.ndim, one.dtype) for one in tensors)

    def make() -> tuple[Script, _Site]:
        # Without the numbers of this block's parameters, which would stay.
        empty = [parameter.detach().to("meta") for parameter in step.parameters]
        site = Skeleton(step.site, step.parameters).filled(empty)
        block = Skeleton(site, empty)
        return _trace(lambda tokens, given: block.filled(given)(tokens), tokens, tensors), site

    return _Link(key, _program(key, make), step.given)


def _chain(
    links: Sequence[_Link], places: Sequence[Place], tokens: Tokens, frozen: Sequence[Tensor], *sites: Tensor
) -> Script:
    """A program that calls those of blocks: so the lock is taken once, and not after each."""

    def forward(tokens: Tokens, frozen: Sequence[Tensor], *sites: Tensor) -> Tokens:
        given, own = [place.of(memory) for memory in sites for place in places], iter(frozen)
        for link in links:
            tokens = _run(link.script, tokens, _tensors(link.given, given, own))
        return tokens

    def make() -> tuple[Script, None]:
        return _trace(forward, tokens, frozen, *sites), None

    return _program((tuple(places), *((link.key, link.given) for link in links)), make)


def _held(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The list as TorchScript's own. Whenever it lets go of a tensor that nothing but Python holds then, which it does
    of each argument after its last use, it takes the interpreter's lock in the middle of a program."""
    with _alone, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        return cast(Sequence[Tensor], torch.jit.script(list(tensors)))


def _program(key: Hashable, make: Callable[[], tuple[Script, _Site | None]]) -> Script:
    with _alone:
        if key not in _made:
            if len(_made) >= _MOST:
                raise UnsupportedError(f"there are {_MOST} of other models already")
            _made[key] = make()
        return _made[key][0]


def _trace(forward: Callable[..., Tokens], tokens: Tokens, *given: Sequence[Tensor] | Tensor) -> Script:
    sized = tokens.size is not None

    def flat(x: Tensor, *rest: Any) -> Any:
        size, given = (rest[0], rest[1:]) if sized else (None, rest)
        return _flat(forward(Tokens(x, size), *given))

    # The filters of warnings are the process', so that this is done by one thread at a time.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        script = torch.jit.trace(flat, (*_flat(tokens), *given), check_trace=False)
    for warning in told:  # of what depends on a number, and would stay as it was with this one
        if issubclass(warning.category, TracerWarning):
            raise UnsupportedError(str(warning.message))
    if not isinstance(script, torch.jit.ScriptFunction):
        raise UnsupportedError("TorchScript is turned off")
    return cast(Script, script)


def _run(script: Script, tokens: Tokens, *given: Sequence[Tensor] | Tensor) -> Tokens:
    with optimized_execution(False):  # which would make several copies of the program, with all that it calls in each
        x, *size = script(*_flat(tokens), *given)
    return Tokens(x, size[0] if size else None)


def _flat(tokens: Tokens) -> tuple[Tensor, ...]:
    """Programs know no None."""
    return (tokens.x,) if tokens.size is None else (tokens.x, tokens.size)
