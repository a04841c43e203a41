"""Accuracy of a task, with its token reduction and without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from tqdm import tqdm

from fpet.calibration_error import calibration_error
from fpet.data import Split
from fpet.errors import DataError, UnsupportedError
from fpet.preprocess import Preprocessing
from fpet.reducers.none import NoReduction
from fpet.tensor_names import dtype_name
from fpet.tokens import Tokens
from fpet.vit import AdaptedViT
from fpet.words import count


@dataclass(frozen=True)
class Evaluation:
    """What a test set says about a task.

    images: how many were classified, each twice if the task reduces tokens. accuracy, accuracy_unreduced: share of
    right answers, 0 to 1, with that reduction and without any. agreement: share of images that both answer alike.
    tokens_in, tokens_out: tokens of an image before the first and after the last block; tokens_vary: whether each image
    decides how many, so that tokens_out is a mean over them.
    """

    images: int
    accuracy: float
    accuracy_unreduced: float
    agreement: float
    tokens_in: int
    tokens_out: float
    tokens_vary: bool

    @property
    def tokens_in_words(self) -> str:
        """What becomes of the tokens, such as `197 -> 99 tokens`."""
        left = f"{self.tokens_out:.1f} tokens on average" if self.tokens_vary else f"{self.tokens_out} tokens"
        return f"{self.tokens_in} -> {left}"


def classify(model: AdaptedViT, images: Tensor, preprocessing: Preprocessing) -> tuple[Tensor, Tensor]:
    """uint8 [B, 3, H, W] at the model's input size -> float32 logits [B, K], and tokens that were left, int64 [B].

    Both are on the model's device.
    """
    tokens = model.tokens(_normalized(model, images, preprocessing))
    return _logits(model, tokens), tokens.lengths()


def _normalized(model: AdaptedViT, images: Tensor, preprocessing: Preprocessing) -> Tensor:
    return preprocessing.normalize(images.to(model.backbone.device), model.backbone.dtype)


def _logits(model: AdaptedViT, tokens: Tokens) -> Tensor:
    return cast(Tensor, model.head(model.pool(tokens))).float()


@dataclass(frozen=True)
class Confusion:
    """Which test images were taken for what. Of many classes a matrix of counts would not fit into memory.

    targets, answers: int64 [N] on the CPU, indices into the K = `classes` labels.
    """

    targets: Tensor
    answers: Tensor
    classes: int

    @property
    def images(self) -> Tensor:
        """Test images of each class, int64 [K]."""
        return torch.bincount(self.targets, minlength=self.classes)

    @property
    def right(self) -> Tensor:
        """Right answers to those of each class, int64 [K]."""
        return torch.bincount(self.targets[self.targets == self.answers], minlength=self.classes)

    @property
    def accuracy(self) -> float:
        """The share of right answers, 0 to 1."""
        return int((self.targets == self.answers).sum()) / len(self.targets)

    @property
    def balanced_accuracy(self) -> float:
        """The mean over classes of the share of right answers, 0 to 1. A class without test images does not count."""
        images = self.images
        tested = images > 0
        return float((self.right[tested].double() / images[tested]).mean())

    def mistakes(self, label: int) -> Tensor:
        """Wrong answers to images of a class, by what they were taken for, int64 [K]."""
        wrong = (self.targets == label) & (self.answers != label)
        return torch.bincount(self.answers[wrong], minlength=self.classes)

    def matrix(self) -> Tensor:
        """Counts by class (row) and answer (column), int64 [K, K]."""
        counts = torch.zeros((self.classes, self.classes), dtype=torch.int64)
        return counts.index_put_((self.targets, self.answers), torch.ones_like(self.targets), accumulate=True)


@dataclass(frozen=True)
class Answers:
    """What a task takes each test image for, in the order of the split; on the CPU.

    reduced, unreduced: with the task's token reduction and without any; probabilities: float32 [N], of the answers in
    `reduced`; tokens_out: int64 [N], left by that reduction; reduces: whether the task has one; if not, both are the
    same.
    """

    reduced: Confusion
    unreduced: Confusion
    probabilities: Tensor
    tokens_out: Tensor
    reduces: bool

    @property
    def calibration_error(self) -> float:
        """Of the answers with token reduction, as `calibration_error` has it."""
        return calibration_error(self.probabilities, self.reduced.answers == self.reduced.targets)


def evaluate(model: AdaptedViT, split: Split, preprocessing: Preprocessing, batch_size: int = 64) -> Evaluation:
    """Classifies a split with and without token reduction, and sums up; raises what `answers` does."""
    return summary(model, answers(model, split, preprocessing, batch_size))


def summary(model: AdaptedViT, given: Answers) -> Evaluation:
    """What the answers of a model come to."""
    return Evaluation(
        images=len(given.probabilities),
        accuracy=given.reduced.accuracy,
        accuracy_unreduced=given.unreduced.accuracy,
        agreement=float((given.reduced.answers == given.unreduced.answers).double().mean()),
        tokens_in=model.tokens_in,
        tokens_out=float(given.tokens_out.double().mean()) if model.reducer.tokens_vary else model.tokens_out,
        tokens_vary=model.reducer.tokens_vary,
    )


@torch.inference_mode()
def answers(model: AdaptedViT, split: Split, preprocessing: Preprocessing, batch_size: int = 64) -> Answers:
    """Classifies a split with and without token reduction, resizing batch by batch.

    The model is taken in evaluation mode, and keeps the mode that it is in; it runs in its own dtype, on its own
    device.

    Raises:
        TypeError: for what is no split, such as a whole data set.
        ValueError: for batches of less than one image.
        DataError: if a picture cannot be read, there is none, or a target of the split is none of the task's classes.
        UnsupportedError: if answers are not finite, as where the model's dtype overflows.
    """
    if not isinstance(split, Split):
        raise TypeError(f"images to test on are a Split, such as `data.test`, not a {type(split).__name__}")
    classes = len(next(model.head.parameters()))
    split.check_targets(classes)
    model = model.in_evaluation()
    reduces, full = not isinstance(model.reducer, NoReduction), model.unreduced()
    # Read once all are computed, so that a GPU need not wait for each batch.
    found: list[tuple[Tensor, ...]] = []
    with _batches(split, preprocessing, batch_size, "test") as batches:
        for images in batches:
            own, unreduced = model.tokens_of_both(_normalized(model, images, preprocessing), full)
            given = _logits(model, own)
            plain = _logits(model, unreduced) if reduces else given
            finite, sure = (given.isfinite() & plain.isfinite()).all(dim=1), given.softmax(dim=1).amax(dim=1)
            found.append((given.argmax(dim=1), plain.argmax(dim=1), sure, own.lengths(), finite))
    mine, others, probabilities, left, finite = (torch.cat(parts).cpu() for parts in zip(*found, strict=True))
    _refuse_not_finite(model, finite)
    with_it, without = (Confusion(split.targets, each, classes) for each in (mine, others))
    return Answers(with_it, without, probabilities, left, reduces)


@torch.inference_mode()
def logits(model: AdaptedViT, split: Split, preprocessing: Preprocessing, batch_size: int = 64) -> Tensor:
    """Of each image of a split, with the model's token reduction: float32 [N, K] on the CPU; else as `answers`."""
    model = model.in_evaluation()
    with _batches(split, preprocessing, batch_size, "validation") as batches:
        found = torch.cat([classify(model, images, preprocessing)[0] for images in batches]).cpu()
    _refuse_not_finite(model, found.isfinite().all(dim=1))
    return found


@contextmanager
def _batches(split: Split, preprocessing: Preprocessing, batch_size: int, told: str) -> Iterator[Iterable[Tensor]]:
    """The images of a split, resized, as uint8 [B, 3, H, W]; on a terminal a bar called `told` shows the time left."""
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size} should be above 0")
    if not len(split):
        raise DataError(f"there are no {told} images")
    with closing(split.batches(preprocessing, batch_size)) as batches:
        shown = tqdm(batches, told, -(-len(split) // batch_size), unit="batch", disable=None)
        yield (images for images, _ in shown)


def _refuse_not_finite(model: AdaptedViT, finite: Tensor) -> None:
    """Raises UnsupportedError unless the answers to all images, bool [N], are finite."""
    if not finite.all():
        without = int((~finite).sum())
        raise UnsupportedError(f"{without} of {count(len(finite), 'image')} have no answer: {not_finite(model)}")


def not_finite(model: AdaptedViT) -> str:
    """The message for a model with logits that are not finite, whose largest value means nothing."""
    dtype = model.backbone.dtype
    said = f"the task's answers in {dtype_name(dtype)} are not finite"
    return said if dtype == torch.float32 else f"{said}; those in float32 may be"
