"""A task in this process, from pictures to labels; `fpet.client` asks a service in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from fpet.backbone import Backbone
from fpet.errors import ImageError, UnsupportedError
from fpet.evaluation import classify, not_finite
from fpet.image_files import UNREADABLE, LocalPicture, LocalPictures, reason, to_pixels
from fpet.pictures import each, name_of
from fpet.predictions import Classification, Prediction, TokenCounts
from fpet.task import Task

_BATCH = 16  # of more, pixels and activations would take memory and, on a CPU, no less time an image

Found: TypeAlias = Classification | ImageError


class Classifier:
    """A task on its backbone, with its labels and its preprocessing.

    It computes in the dtype and on the device that the backbone has when it is made: call `Backbone.move` before.
    Classifiers may share a backbone, and threads a classifier.

    task: as given. model: with the task's token reduction, in evaluation mode.
    """

    def __init__(self, task: Task, backbone: Backbone) -> None:
        """Raises TaskError as `Task.build` does."""
        self.task = task
        self.model = task.build(backbone)
        self._unreduced = self.model.unreduced()

    def classify(
        self, images: LocalPictures, *, top_k: int = 1, tokens: Literal["reduced", "full"] = "reduced"
    ) -> list[Classification]:
        """One answer an image, in their order.

        images: one or any number of paths, bytes of files, open binary files, Pillow images and RGB pixels, uint8
        [H, W, 3] as an array or [3, H, W] as a tensor; they are read batch by batch. top_k: how many labels to tell of
        each. tokens: "full" switches the task's token reduction off.

        Raises:
            ImageError: naming the first image that cannot be read or has no finite answer.
            UnsupportedError: for fewer than one label, more than the task has, or other `tokens`; if the backbone was
                moved since this was made.
        """
        found = []
        for one in self._each(images, top_k, tokens):
            if isinstance(one, ImageError):
                raise one
            found.append(one)
        return found

    def classify_each(
        self, images: LocalPictures, *, top_k: int = 1, tokens: Literal["reduced", "full"] = "reduced"
    ) -> list[Classification | ImageError]:
        """As `classify`, with the error of an image in the place of its answer."""
        return list(self._each(images, top_k, tokens))

    def _each(self, images: LocalPictures, top_k: int, tokens: str) -> Iterator[Found]:
        labels = len(self.task.header.labels)
        if not 1 <= top_k <= labels:
            raise UnsupportedError(f"top_k = {top_k}: the task {self.task.header.name} has {labels} labels")
        if tokens not in ("reduced", "full"):
            raise UnsupportedError(f"tokens = {tokens!r}; known are reduced, full")
        backbone, own = self.model.backbone, next(self.model.head.parameters())
        if (own.device, own.dtype) != (backbone.device, backbone.dtype):
            raise UnsupportedError("the backbone was moved since this classifier was made: make it anew")
        rest = enumerate(each(images))
        while batch := list(islice(rest, _BATCH)):
            yield from self._batch(batch, top_k, reduced=tokens == "reduced")

    def _batch(self, batch: Sequence[tuple[int, LocalPicture]], top_k: int, *, reduced: bool) -> list[Found]:
        """Runs those that can be read."""
        names = [name_of(image, place) for place, image in batch]
        pixels = [self._read(image, name) for (_, image), name in zip(batch, names, strict=True)]
        readable = [one for one in pixels if isinstance(one, Tensor)]
        answers = iter(self._run(torch.stack(readable), top_k, reduced=reduced) if readable else ())
        found: list[Found] = []
        for name, one in zip(names, pixels, strict=True):
            answer = next(answers) if isinstance(one, Tensor) else one
            found.append(answer or ImageError(f"{name}: {not_finite(self.model)}"))
        return found

    def _read(self, image: LocalPicture, name: str) -> Tensor | ImageError:
        """uint8 [3, H, W] as the task takes them."""
        try:
            return self.task.header.preprocessing.resize(to_pixels(image))
        except ImageError as error:
            return ImageError(f"{name}: {error}")
        except UNREADABLE as error:
            return ImageError(f"{name}: cannot be read: {reason(error)}")

    @torch.inference_mode()
    def _run(self, images: Tensor, top_k: int, *, reduced: bool) -> Iterator[Classification | None]:
        """uint8 [B, 3, H, W] -> an answer each; None where it is not finite."""
        model = self.model if reduced else self._unreduced
        logits, left = classify(model, images, self.task.header.preprocessing)
        best = logits.softmax(dim=1).topk(top_k)
        finite = logits.isfinite().all(dim=1)
        rows = zip(*(one.tolist() for one in (finite, best.values, best.indices, left)), strict=True)
        return (self._answer(*row) if whole else None for whole, *row in rows)

    def _answer(self, probabilities: list[float], indices: list[int], tokens: int) -> Classification:
        labels = self.task.header.labels
        predictions = (Prediction(labels[i], i, value) for i, value in zip(indices, probabilities, strict=True))
        return Classification(tuple(predictions), TokenCounts(self.model.tokens_in, tokens))
