"""A task: adapter, reducer, head, labels and preprocessing in one safetensors file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from fpet.adapters import ADAPTERS, build_adapter
from fpet.adapters.base import Adapter
from fpet.errors import TaskError, UnsupportedError
from fpet.files import read_regular
from fpet.header import HeadSpec, Method, TaskHeader
from fpet.linear import LowBitLinear
from fpet.packing import check_tensors, pack_module, unpack_module
from fpet.reducers import REDUCERS, build_reducer
from fpet.reducers.base import Reducer
from fpet.registry import completed
from fpet.safetensors_files import parse_safetensors, write_safetensors
from fpet.task_checks import check_backbone, check_labels, check_method, check_values
from fpet.tokens import Geometry, Layout
from fpet.vit import AdaptedViT, refuse_misfit

if TYPE_CHECKING:
    from fpet.backbone import Backbone

_METADATA_KEY = "fpet"
_META_TASKS = 64  # size of the cache of modules on the meta device


@dataclass(frozen=True, eq=False)
class Task:
    """A task as it lies in its file.

    tensors: `adapter.*`, `reducer.*`, `head.*` on the CPU, quantised weights packed; digest: SHA-256 of the file in
    hexadecimal; size: its length in bytes.
    """

    path: Path
    header: TaskHeader
    tensors: dict[str, Tensor]
    digest: str
    size: int

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Task:
        """Reads a task file strictly; whether it fits a backbone is for `build` to say.

        Raises:
            TaskError: naming the file and the field or tensor that is wrong.
        """
        return cls.parse(read_regular(Path(path), TaskError), path)

    @classmethod
    def parse(cls, data: bytes, path: str | os.PathLike[str]) -> Task:
        """As `load`, from the bytes of a file that lies or will lie at `path`; raises the same."""
        path = Path(path)
        metadata, tensors = parse_safetensors(data, path, TaskError)
        if _METADATA_KEY not in metadata:
            raise TaskError(f"{path}: the header has no field {_METADATA_KEY!r}; this is not a task file")
        try:
            header = TaskHeader.from_json(metadata[_METADATA_KEY])
        except ValueError as error:
            raise TaskError(f"{path}: {error}") from error
        check_values(path, tensors)
        check_labels(path, header, tensors)
        return cls(path, header, tensors, hashlib.sha256(data).hexdigest(), len(data))

    def build(self, backbone: Backbone) -> AdaptedViT:
        """The adapted model in evaluation mode, with quantised weights dequantised once; of the dtype of the backbone,
        and on its device.

        Raises:
            TaskError: if the task belongs to another backbone, its methods are unknown or do not fit, or a tensor is
                missing, extra or misshapen.
        """
        model = self._filled(backbone)
        model.trainable().requires_grad_(False).to(device=backbone.device, dtype=backbone.dtype)
        return model.eval()

    def to_train(self, backbone: Backbone, *, drop_path: float = 0.0) -> AdaptedViT:
        """A model as of `new_model` that starts with the weights of the task. Its low-bit weights can be trained, and
        are rounded as before, but for a few matrices (`fpet.quantize.as_latent`).

        Raises:
            TaskError: as `build`.
        """
        return self._filled(backbone, drop_path, latent=True)

    def _filled(self, backbone: Backbone, drop_path: float = 0.0, *, latent: bool = False) -> AdaptedViT:
        check_backbone(self.path, self.header, backbone)
        try:
            # Shapes first, without memory for them: a file of few bytes may ask for a model of many.
            check_tensors(task_on_meta(self.header, backbone.geometry), self.tensors)
            with torch.random.fork_rng(devices=[]):  # random weights that the file's replace: no draw of the caller's
                model = new_model(self.header, backbone, drop_path=drop_path)
            unpack_module(model.trainable(), self.tensors, latent=latent)
        except (ValueError, UnsupportedError) as error:
            raise TaskError(f"{self.path}: {error}") from error
        return model


def new_model(header: TaskHeader, backbone: Backbone, *, drop_path: float = 0.0) -> AdaptedViT:
    """A freshly initialised model of the task that `header` describes, for training, on the backbone's device.

    What it adds to the backbone is float32, even if the backbone is not; such a model runs only under autocast.

    Raises:
        UnsupportedError: for unknown kinds or arguments, or methods that do not fit the backbone.
    """
    modules = _new_modules(header.adapter, header.reducer, header.head, len(header.labels), backbone.geometry)
    model = AdaptedViT(backbone, *modules, drop_path=drop_path, methods=(header.adapter, header.reducer))
    model.trainable().to(device=backbone.device, dtype=torch.float32)
    return model


class _Modules(NamedTuple):
    """What a task puts around a backbone."""

    adapter: Adapter
    reducer: Reducer
    head: LowBitLinear


def _new_modules(adapter: Method, reducer: Method, head: HeadSpec, classes: int, geometry: Geometry) -> _Modules:
    # The reducer last: with one seed, adapter and head begin alike whatever the reduction.
    adapting = build_adapter(adapter.kind, geometry, adapter.arguments)
    classifying = LowBitLinear(geometry.embed_dim, classes, head.bits, head.bias)
    layout = Layout.of(geometry, adapting.num_prompts)
    reducing = build_reducer(reducer.kind, geometry, layout, reducer.arguments)
    return _Modules(adapting, reducing, classifying)


def task_on_meta(header: TaskHeader, geometry: Geometry) -> nn.ModuleDict:
    """A task's `adapter`, `reducer` and `head` on the meta device, which tasks share; raises what `new_model` does."""
    # What JSON does not hold becomes text, which the registry refuses as of the wrong type.
    methods = json.dumps([asdict(method) for method in (header.adapter, header.reducer)], default=repr)
    return _cached_on_meta(methods, header.head, len(header.labels), geometry)


@lru_cache(_META_TASKS)
def _cached_on_meta(methods: str, head: HeadSpec, classes: int, geometry: Geometry) -> nn.ModuleDict:
    adapter, reducer = (Method(**fields) for fields in json.loads(methods))
    with torch.device("meta"):
        modules = _new_modules(adapter, reducer, head, classes, geometry)
    refuse_misfit(modules.adapter, modules.reducer, geometry)  # first: clearer than an error about tensors
    return nn.ModuleDict(modules._asdict())


def save_task(path: str | os.PathLike[str], header: TaskHeader, model: AdaptedViT) -> None:
    """Writes a trained model as a task file, atomically.

    Raises:
        TaskError: if the header describes another model, naming what differs; if a value or a number of the header is
            not finite, or the file cannot be written.
        UnsupportedError: for a model with low-bit weights that `Task.build` made, or a changed backbone.
    """
    path, tensors = Path(path), pack_module(model.trainable())
    model.backbone.check_unchanged()
    _check_model(path, header, model, tensors)
    _write(path, header, tensors)


def save_tensors(
    path: str | os.PathLike[str], header: TaskHeader, tensors: Mapping[str, Tensor], backbone: Backbone
) -> None:
    """Writes tensors as they are, named and packed as in a task file, as the task that `header` describes; atomically.

    So a task gets other labels, or another name: with its own `tensors` and a changed header.

    Raises:
        ValueError: naming the first tensor that is missing, extra or misshapen; nothing is written.
        TaskError: if the header describes a task of another backbone, a value or a number of the header is not finite,
            or the file cannot be written.
        UnsupportedError: for unknown kinds or arguments, or methods that do not fit the backbone.
    """
    path = Path(path)
    check_backbone(path, header, backbone)
    check_tensors(task_on_meta(header, backbone.geometry), tensors)
    _write(path, header, tensors)


def _check_model(path: Path, header: TaskHeader, model: AdaptedViT, tensors: Mapping[str, Tensor]) -> None:
    """Raises TaskError unless the header describes the model, which has these tensors."""
    check_backbone(path, header, model.backbone)
    if model.methods is None:
        raise TaskError(f"{path}: the model does not say its methods, as one from `new_model` does")
    check_method(f"{path}: the adapter", header.adapter, model.methods[0], ADAPTERS)
    check_method(f"{path}: the reducer", header.reducer, model.methods[1], REDUCERS)
    check_labels(path, header, tensors)
    try:
        check_tensors(task_on_meta(header, model.backbone.geometry), tensors)
    except (ValueError, UnsupportedError) as error:
        raise TaskError(f"{path}: {error}") from error


def _write(path: Path, header: TaskHeader, tensors: Mapping[str, Tensor]) -> None:
    check_values(path, tensors)
    adapter, reducer = completed(ADAPTERS, header.adapter), completed(REDUCERS, header.reducer)
    try:  # all arguments, so that the file means the same where defaults are others
        described = replace(header, adapter=adapter, reducer=reducer).to_json()
    except ValueError as error:
        raise TaskError(f"{path}: {error}") from error
    write_safetensors(path, tensors, {_METADATA_KEY: described}, TaskError)
