"""The `.bin` files of Bi-LoRA and Bi-AdaptFormer (Jie et al., ICCV 2023), as their authors published them.

A file has no header: it is the records of the quantised matrices in the order of the model, each
[codes][mean float32][std float32], and then, unless the head is one of them ("bihead"), the head's weight and bias in
float32, row by row; all little-endian. The codes lie as in a task file, so nothing is rounded a second time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fpet.backbone import Backbone
from fpet.errors import UnsupportedError
from fpet.header import TaskHeader
from fpet.linear import FULL_PRECISION, LowBitLinear
from fpet.task import Task, task_on_meta

MATRICES = {"adaptformer": ("down", "up"), "lora": ("q.down", "q.up", "v.down", "v.up")}


class _Field(NamedTuple):
    """One run of values in a file: a tensor of the task file, flat; dtype: numpy's."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def decode(data: bytes, header: TaskHeader, backbone: Backbone) -> dict[str, Tensor]:
    """A file's content as the tensors of the task that `header` describes.

    Raises:
        ValueError: if the length is another, or what should be a mean, a deviation or a head cannot be one.
        UnsupportedError: if such a file cannot hold the task.
    """
    fields = _fields(header, backbone)
    expected = sum(field.size for field in fields)
    if len(data) != expected:
        raise ValueError(
            f"{len(data)} bytes; {header.adapter.kind} with {header.adapter.arguments}, {len(header.labels)} classes "
            f"and a head of {header.head.bits} bits on {header.backbone.architecture} takes {expected}"
        )
    tensors: dict[str, Tensor] = {}
    start = 0
    for field in fields:
        values = np.frombuffer(data, field.dtype, math.prod(field.shape), start).reshape(field.shape)
        tensor = torch.from_numpy(values.astype(np.dtype(field.dtype).newbyteorder("=")))
        if not tensor.isfinite().all() or (field.name.endswith(".stats") and tensor[1] <= 0):
            raise ValueError(
                f"no values for {field.name!r} where they should be: the file is of another method or task"
            )
        tensors[field.name] = tensor
        start += field.size
    return tensors


def published_bytes(task: Task, backbone: Backbone) -> bytes:
    """A task as such a file: byte for byte the one that it was decoded from.

    Raises:
        UnsupportedError: if such a file cannot hold the task.
        TaskError: if the task does not fit the backbone.
    """
    task.build(backbone)
    fields = _fields(task.header, backbone)
    return b"".join(task.tensors[field.name].numpy().astype(field.dtype).tobytes() for field in fields)


def _fields(header: TaskHeader, backbone: Backbone) -> list[_Field]:
    """The whole layout, in order."""
    kind = header.adapter.kind
    if kind not in MATRICES:
        raise UnsupportedError(f"published files hold {' or '.join(MATRICES)}, not {kind}")
    modules = task_on_meta(header, backbone.geometry)  # a width takes no memory before the length proves it
    depth = backbone.geometry.depth
    names = [f"adapter.blocks.{block}.{matrix}" for block in range(depth) for matrix in MATRICES[kind]]
    head = {"head.weight"} if header.head.bits != FULL_PRECISION else {"head.weight", "head.bias"}
    expected, parameters = {f"{name}.weight" for name in names} | head, dict(modules.named_parameters())
    if any(name.startswith("reducer.") for name in parameters):
        raise UnsupportedError(
            f"published files have no place for the weights of the token reduction {header.reducer.kind}"
        )
    if wrong := sorted(expected ^ parameters.keys()):
        raise UnsupportedError(
            "published files hold LoRA of queries and values, or AdaptFormer, and a head that has a bias exactly if it "
            f"is not quantised, which is not so of {wrong[0]}"
        )
    fields = [field for name in names for field in _record(name, modules.get_submodule(name))]
    if header.head.bits != FULL_PRECISION:
        return [*fields, *_record("head", modules.get_submodule("head"))]
    values = modules.get_submodule("head").named_parameters()  # the weight, then the bias
    return [*fields, *(_Field(f"head.{name}", tuple(value.shape), "<f4") for name, value in values)]


def _record(name: str, layer: nn.Module) -> list[_Field]:
    assert isinstance(layer, LowBitLinear)
    bits = layer.weight.numel() * layer.bits
    if layer.bits == FULL_PRECISION or bits % 8:
        raise UnsupportedError(f"published files hold quantised matrices of whole bytes; {name} has {bits} bits")
    return [_Field(f"{name}.weight.codes", (bits // 8,), "u1"), _Field(f"{name}.weight.stats", (2,), "<f4")]
