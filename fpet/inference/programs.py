"""A model as a program of TorchScript, which computes without Python's lock.

A forward in Python takes the interpreter's lock again after every operator, and waits while another thread has it. A
program takes it once, at its end. Blocks of the same structure share a script, across models too, because their tensors
are arguments of it: so few scripts are traced, each in the time that a few blocks take to compute.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter, BlockAdapter
from fpet.block import BlockParts, adapted_block, log_size
from fpet.comparison import beyond_rounding
from fpet.ends import check_images, embed, norm, pool
from fpet.errors import UnsupportedError
from fpet.inference.reordered import with_reordered
from fpet.inference.scripts import Script, held, run, script_of, trace
from fpet.inference.skeleton import Skeleton
from fpet.inference.task_weights import Place, lay_out
from fpet.reducers.base import BlockReducer
from fpet.tokens import Tokens
from fpet.vit import AdaptedViT
from fpet.words import reason

Module = TypeVar("Module", bound=nn.Module)

_COMPARED = 4096  # elements of a tensor that is compared by its values; larger ones are compared by identity
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = "_forward_pre_hooks", "_forward_hooks"
_BLOCKS = "blocks"  # of timm's model, and of an adapter


class Batch(NamedTuple):
    """Images [B, 3, H, W], and the parameters that a program is given, if any are, laid out flat: [P] or [B, P]."""

    images: Tensor
    flat: Tensor | None = None


class Program:
    """The program of a model without its head. Any thread may call the methods.

    model: in evaluation mode; given: those of its parameters that every batch brings along in `Batch.flat`, where
    `lay_out` places them. examples: batches and the model's embeddings [B, C] of them: new scripts are traced on the
    first, and the program must answer as the model on all. It computes batches of any size.

    Raises:
        UnsupportedError: if it cannot be made, or answers otherwise than the model.
    """

    def __init__(self, model: AdaptedViT, given: Sequence[Tensor], examples: Sequence[tuple[Batch, Tensor]]) -> None:
        vit: Any = model.vit
        self._patch_embed = vit.patch_embed
        self._places = lay_out([parameter.shape for parameter in given])
        order = {id(parameter): index for index, parameter in enumerate(given)}
        with torch.inference_mode():
            try:
                steps = [_Step(stage, order) for stage in _stages(model)]
                frozen = [parameter for step in steps for parameter in step.frozen]
                self._script = self._make(steps, frozen, examples[0][0])
                self._frozen = held(frozen)
                for batch, answers in examples:
                    self._check(batch, answers)
            except Exception as error:  # whatever torch, or a foreign method, raises
                what = "no program of TorchScript can be made of the model"
                raise UnsupportedError(f"{what}: {reason(error)}") from error

    def features(self, batch: Batch) -> Tensor:
        """Pooled embeddings [B, C], without a gradient.

        Raises:
            TypeError, ValueError: for images that the model does not take.
        """
        check_images(batch.images, self._patch_embed)
        return run(self._script, Tokens(batch.images, None), self._frozen, *_memory(batch)).x

    def _make(self, steps: Sequence[_Step], frozen: Sequence[Tensor], batch: Batch) -> Script:
        first = tokens = Tokens(batch.images, None)
        given = [place.of(memory) for memory in _memory(batch) for place in self._places]
        links = []
        for step in steps:
            tensors = _tensors(step.given, given, iter(step.frozen))
            links.append(_link(step, tokens, tensors))
            tokens = run(links[-1].script, tokens, tensors)
        return _chain(links, self._places, first, frozen, *_memory(batch))

    def _check(self, batch: Batch, answers: Tensor) -> None:
        wrong = beyond_rounding(self.features(batch), answers, batch.images.dtype)
        if wrong is not None:
            raise UnsupportedError(f"its answers differ by {wrong:.2g}")


def _memory(batch: Batch) -> tuple[Tensor, ...]:
    """The arguments of a program beside images: the flat parameters, if the batch has any."""
    return () if batch.flat is None else (batch.flat,)


def _tensors(places: Sequence[int | None], given: Sequence[Tensor], frozen: Iterator[Tensor]) -> list[Tensor]:
    """A stage's parameters in order: `given[place]`, or the next of its own, `frozen`, where the place is None."""
    return [next(frozen) if place is None else given[place] for place in places]


class _Front(nn.Module):
    """The stage before the first block; `x` of its input is the images."""

    def __init__(self, vit: nn.Module, adapter: Adapter) -> None:
        super().__init__()
        self.vit = _without_blocks(vit)
        self.adapter = _without_blocks(adapter)

    def forward(self, tokens: Tokens) -> Tokens:
        return Tokens(embed(self.vit, self.adapter, tokens.x), None)


class _Back(_Front):
    """The stage behind the last block; `x` of its output is the embeddings."""

    def forward(self, tokens: Tokens) -> Tokens:
        return Tokens(pool(self.vit, self.adapter, norm(self.vit, self.adapter, tokens)), None)


class _Block(nn.Module):
    """A block with what acts in it."""

    def __init__(self, block: nn.Module, adapter: nn.Module, reduce: nn.Module) -> None:
        super().__init__()
        self.block = block
        self.adapter = cast(BlockAdapter, adapter)
        self.reduce = cast(BlockReducer, reduce)
        self.drop_path = nn.Identity()

    def forward(self, tokens: Tokens) -> Tokens:
        parts = BlockParts(self.block, self.adapter, self.reduce, self.drop_path)
        return adapted_block(parts, tokens, log_size(tokens))


def _without_blocks(module: Module) -> Module:
    """The same module, but for its blocks."""
    ends = copy.copy(module)
    ends._modules = {name: child for name, child in module._modules.items() if name != _BLOCKS}
    return ends


def _stages(model: AdaptedViT) -> list[nn.Module]:
    """The stages of a model in order; each makes tokens of tokens."""
    blocks = zip(cast(Any, model.vit).blocks, model.adapter.blocks, model.reducer.blocks, strict=True)
    within = [_Block(with_reordered(block), adapter, reduce) for block, adapter, reduce in blocks]
    return [_Front(model.vit, model.adapter), *within, _Back(model.vit, model.adapter)]


class _Step:
    """A stage with its parameters. order: id -> place of those that every batch brings along; given: each parameter's
    place there or None; frozen: the parameters without a place; kind: all else that a script of the stage depends
    on."""

    def __init__(self, stage: nn.Module, order: Mapping[int, int]) -> None:
        self.stage = stage
        self.parameters = list(stage.parameters())
        self.given = tuple(order.get(id(parameter)) for parameter in self.parameters)
        self.frozen = [one for one, place in zip(self.parameters, self.given, strict=True) if place is None]
        own = {id(parameter): index for index, parameter in enumerate(self.parameters)}
        ties = tuple(own[id(each)] for _, each in stage.named_parameters(remove_duplicate=False))
        self.kind: Hashable = (_described(stage), ties)


def _described(module: nn.Module) -> Hashable:
    """What a module's script depends on, except the values of its parameters: types, attributes, buffers, shapes."""
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise UnsupportedError(f"a hook is on a {module._get_name()}, which a program would not call")
    own = {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE} | module._buffers
    parameters = [(name, None if one is None else tuple(one.shape)) for name, one in module._parameters.items()]
    below = [(name, None if one is None else _described(one)) for name, one in module._modules.items()]
    values = [(name, _comparable(value)) for name, value in own.items()]
    return type(module), module.training, tuple(values), tuple(parameters), tuple(below)


def _comparable(value: object) -> Hashable:
    """A key that two values share only if they are the same to a script."""
    if isinstance(value, Tensor) and value.numel() <= _COMPARED:
        return value.dtype, value.device, tuple(value.shape), tuple(value.flatten().tolist())
    if isinstance(value, Mapping):
        return type(value), tuple((name, _comparable(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(map(_comparable, value))
    if isinstance(value, Hashable) and not isinstance(value, Tensor):
        return type(value), value
    return id(value)


class _Link(NamedTuple):
    """A stage's script and the script's key; given: as in `_Step`."""

    key: Hashable
    script: Script
    given: tuple[int | None, ...]


def _link(step: _Step, tokens: Tokens, tensors: Sequence[Tensor]) -> _Link:
    """The link of a stage; tokens, tensors: an input and parameters of the stage to trace it on."""
    x, size = tokens
    key = step.kind, x.device, x.dtype, size is None, tuple((one.ndim, one.dtype) for one in tensors)

    def make() -> tuple[Script, nn.Module]:
        # Without the values of this stage's parameters, which would stay in memory as long as the script.
        empty = [torch.empty(one.shape, dtype=one.dtype, device="meta") for one in step.parameters]
        stage = Skeleton(step.stage, step.parameters).filled(empty)
        skeleton = Skeleton(stage, empty)
        return trace(lambda tokens, given: skeleton.filled(given)(tokens), tokens, tensors), stage

    return _Link(key, script_of(key, make), step.given)


def _chain(
    links: Sequence[_Link], places: Sequence[Place], tokens: Tokens, frozen: Sequence[Tensor], *memory: Tensor
) -> Script:
    """A script that calls those of all stages, so that the lock is taken once and not after every stage."""

    def forward(tokens: Tokens, frozen: Sequence[Tensor], *memory: Tensor) -> Tokens:
        given, own = [place.of(one) for one in memory for place in places], iter(frozen)
        for link in links:
            tokens = run(link.script, tokens, _tensors(link.given, given, own))
        return tokens

    def make() -> tuple[Script, None]:
        return trace(forward, tokens, frozen, *memory), None

    return script_of((tuple(places), *((link.key, link.given) for link in links)), make)
