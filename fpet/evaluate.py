"""Accuracy of a task, with its token reduction and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from tqdm import tqdm

from fpet.data import Split
from fpet.preprocess import Preprocessing
from fpet.reducers.none import NoReduction
from fpet.vit import AdaptedViT


@dataclass(frozen=True)
class Evaluation:
    """What a test set says about a task.

    images: how many were classified, each twice if the task reduces tokens. accuracy, accuracy_unreduced: share of
    right answers, 0 to 1, with that reduction and without any. agreement: share of images that both answer alike.
    tokens_in, tokens_out: length of the token sequence before the first and after the last block; tokens_vary: whether
    each image decides that, so that tokens_out is the most.
    """

    images: int
    accuracy: float
    accuracy_unreduced: float
    agreement: float
    tokens_in: int
    tokens_out: int
    tokens_vary: bool

    @property
    def tokens(self) -> str:
        """What becomes of the tokens, such as `197 -> 99 tokens`."""
        return f"{self.tokens_in} -> {'at most ' if self.tokens_vary else ''}{self.tokens_out} tokens"


def classify(model: AdaptedViT, images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """uint8 [B, 3, H, W] at the model's input size -> float32 logits [B, K] on the model's device."""
    weight = next(model.vit.parameters())
    normalised = preprocessing.normalize(images.to(weight.device), weight.dtype)
    return cast(Tensor, model(normalised)).float()


@dataclass(frozen=True)
class Confusion:
    """How many test images of which class were taken for which.

    reduced, unreduced: int64 [K, K] on the CPU, by class (row) and answer (column), with the task's token reduction and
    without any; agreeing: how many images both answer alike.
    """

    reduced: Tensor
    unreduced: Tensor
    agreeing: int


def evaluate(model: AdaptedViT, split: Split, preprocessing: Preprocessing, batch_size: int = 64) -> Evaluation:
    """Classifies a split with and without token reduction, as `confusion`, which raises the same."""
    return summary(model, confusion(model, split, preprocessing, batch_size))


def summary(model: AdaptedViT, counted: Confusion) -> Evaluation:
    """What the counted answers of a model come to."""
    images = int(counted.reduced.sum())
    return Evaluation(
        images=images,
        accuracy=int(counted.reduced.trace()) / images,
        accuracy_unreduced=int(counted.unreduced.trace()) / images,
        agreement=counted.agreeing / images,
        tokens_in=model.tokens_in,
        tokens_out=model.tokens_out,
        tokens_vary=model.reducer.tokens_vary,
    )


@torch.inference_mode()
def confusion(model: AdaptedViT, split: Split, preprocessing: Preprocessing, batch_size: int = 64) -> Confusion:
    """Classifies a split with and without token reduction, resizing batch by batch.

    The model is put in evaluation mode; it runs in its own dtype, on its own device.

    Raises:
        DataError: if a picture cannot be read.
    """
    model.eval()
    reduces = not isinstance(model.reducer, NoReduction)
    unreduced = model.unreduced()
    classes = len(next(model.head.parameters()))
    reduced_counts, unreduced_counts = torch.zeros((2, classes, classes), dtype=torch.int64)
    agreeing = 0
    batches = split.batches(preprocessing, batch_size)
    for images, targets in tqdm(batches, "test", -(-len(split) // batch_size), unit="batch", disable=None):
        answers = classify(model, images, preprocessing).argmax(dim=1).cpu()
        plain = classify(unreduced, images, preprocessing).argmax(dim=1).cpu() if reduces else answers
        one = torch.ones_like(targets)
        reduced_counts.index_put_((targets, answers), one, accumulate=True)
        unreduced_counts.index_put_((targets, plain), one, accumulate=True)
        agreeing += int((answers == plain).sum())
    return Confusion(reduced_counts, unreduced_counts, agreeing)
