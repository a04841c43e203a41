"""One forward for images of different tasks: the frozen backbone runs once, every image with its own task's weights.

The formulas of adapters and reducers take a weight per image as well as one for all (`fpet.linear`). So the tasks'
tensors are stacked along a batch axis, and the one forward pass runs as it always does. Tasks of a family differ in
tensors alone: there is one model for all of them, and one piece of memory with the tensors of each.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fpet.adapters import ADAPTERS
from fpet.adapters.base import why_not_folded
from fpet.comparison import noise
from fpet.errors import UnsupportedError
from fpet.hardware.storages import storages
from fpet.header import Method, TaskHeader
from fpet.inference.mixing_check import refuse_unmixable
from fpet.inference.programs import Batch, Program
from fpet.inference.skeleton import Skeleton
from fpet.inference.task_weights import Weights, aligned_lengths, lay_out, method_parameters, refuse_latent
from fpet.reducers import REDUCERS
from fpet.registry import completed
from fpet.vit import AdaptedViT


def family(header: TaskHeader) -> str:
    """What tasks have in common that can share a forward: backbone, methods with their arguments, and image size.

    Arguments of training alone are left out, and one that is not given counts as its default. Heads may differ.
    """
    methods = [
        _shape(registry, method) for registry, method in ((ADAPTERS, header.adapter), (REDUCERS, header.reducer))
    ]
    return json.dumps([dataclasses.asdict(header.backbone), *methods, header.preprocessing.size], sort_keys=True)


class Template:
    """The model that the tasks of a family have in common, without their weights. Any thread may call the methods.

    model: of any of these tasks, loaded from its file; it is left alone.

    Raises:
        UnsupportedError: if its weights are yet to be rounded, or do not take a batch axis though its methods mix.
    """

    def __init__(self, model: AdaptedViT) -> None:
        refuse_latent(model)
        model = model.in_evaluation()
        parameters = method_parameters(model)
        shapes = [parameter.shape for parameter in parameters]
        self._places = lay_out(shapes)
        self._numbers = sum(aligned_lengths(shapes))
        self._empty = empty = [parameter.detach().to("meta") for parameter in parameters]
        bare = AdaptedViT(model.backbone, model.adapter, model.reducer, nn.Identity()).eval()
        # Nothing of the task itself is kept, not even until its family is gone.
        self._models = {
            True: Skeleton(Skeleton(bare, parameters).filled(empty), empty),
            False: Skeleton(Skeleton(bare.unreduced(), parameters).filled(empty), empty),
        }
        self._programs: dict[tuple[bool, bool], Program] = {}  # by whether they mix tasks, and reduce tokens
        if model.mixes:
            refuse_unmixable(model)

    @property
    def foldable(self) -> bool:
        """Whether tasks of the family fold."""
        return self._models[True].model.adapter.foldable

    @property
    def why_not_folded(self) -> str:
        """Reason, as a clause about the adapter for an error message, why they do not fold."""
        return why_not_folded(self._models[True].model.adapter)

    @property
    def mixes(self) -> bool:
        """Whether tasks of the family share a batch with each other."""
        return self._models[True].model.mixes

    @property
    def tokens_vary(self) -> bool:
        """Whether each image decides how many tokens it keeps, for which a forward must wait."""
        return self._models[True].model.reducer.tokens_vary

    @property
    def nbytes(self) -> int:
        """Bytes of what it holds beside the backbone."""
        model = self._models[True].model
        return sum(storages((*model.adapter.buffers(), *model.reducer.buffers())).values())

    def model(self, flat: Tensor, *, reduced: bool = True) -> AdaptedViT:
        """A task's model without its head, or that of a batch with a set of weights an image.

        flat: as in `Weights`, [P] or [B, P], which is not copied. Where not `reduced`, the model keeps all tokens.
        Modules that hold none of the weights are those of the template: the model is to stay in evaluation mode.

        Raises:
            UnsupportedError: for weights of another length, which are those of another family. Another family may have
                as many, which only `family` tells.
        """
        self._check_length(flat)
        return self._models[reduced].filled([place.of(flat) for place in self._places])

    def features(self, weights: Sequence[Weights], images: Tensor, *, reduced: bool = True) -> Tensor:
        """Pooled embeddings [B, C] of normalised images [B, 3, H, W], the i-th image by the i-th task's weights.

        Raises:
            ValueError: if there are not as many weights as images, or none.
            UnsupportedError: as `model`.
        """
        self.check(weights, images)
        program = self._programs.get((is_mixed(weights), reduced))
        if program is None or torch.is_grad_enabled() or torch.is_autocast_enabled(images.device.type):
            return self.batched(weights, reduced=reduced).features(images)
        return program.features(Batch(images, _stacked(weights)))

    def batched(self, weights: Sequence[Weights], *, reduced: bool = True) -> AdaptedViT:
        """The model, without its head, of a batch with the i-th task's weights for its i-th image; as `model`.

        Where all are the same, nothing is stacked.
        """
        return self.model(_stacked(weights), reduced=reduced)

    def trace(self, examples: Sequence[Sequence[Weights]]) -> None:
        """Makes a program (`fpet.inference.programs`), which `features` runs from then on for batches like the
        examples: of one task each, or of several. With gradients recorded or under autocast the model itself still
        runs.

        examples: the weights for each image of a batch; either all batches are mixed or none is; the first has two
        images or more.

        Raises:
            UnsupportedError: if none can be made, or where each image decides how many tokens it keeps.
        """
        if self.tokens_vary:
            raise UnsupportedError("each image decides how many tokens it keeps, which no program of TorchScript can")
        made = {}
        for reduced, skeleton in self._models.items():
            tried = [self._example(weights, reduced) for weights in examples]
            made[is_mixed(examples[0]), reduced] = Program(skeleton.model, self._empty, tried)
        self._programs |= made  # together, since the times of the two are compared

    @torch.inference_mode()
    def _example(self, weights: Sequence[Weights], reduced: bool) -> tuple[Batch, Tensor]:
        """A batch of noise, and the answer of the forward in Python to it."""
        model = self.batched(weights, reduced=reduced)
        images = noise(model.vit, len(weights))
        return Batch(images, _stacked(weights)), model.features(images)

    def check(self, weights: Sequence[Weights], images: Tensor) -> None:
        """Raises ValueError and UnsupportedError, as `features` would."""
        if not weights or len(weights) != len(images):
            raise ValueError(f"each image has its weights: there are {len(weights)} for {len(images)} images")
        for one in weights:
            self._check_length(one.flat)

    def _check_length(self, flat: Tensor) -> None:
        if flat.shape[-1] != self._numbers:
            raise UnsupportedError(
                f"the weights are of another family: they have {flat.shape[-1]} numbers, not {self._numbers}"
            )


def is_mixed(weights: Sequence[Weights]) -> bool:
    """Whether images have different weights."""
    return any(one is not weights[0] for one in weights)


def _stacked(weights: Sequence[Weights]) -> Tensor:
    """[P] of all, or [B, P] if they differ."""
    return torch.stack([one.flat for one in weights]) if is_mixed(weights) else weights[0].flat


def _shape(registry: Mapping[str, type[Any]], method: Method) -> list[object]:
    left_out = registry[method.kind].training_only if method.kind in registry else ()
    arguments = completed(registry, method).arguments
    return [method.kind, {name: value for name, value in arguments.items() if name not in left_out}]
