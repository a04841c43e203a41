"""Losses in which classes with few training images count as much as those with many."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

CLASS_WEIGHTS = ("none", "balanced")


def balanced_weights(targets: Tensor, classes: int) -> Tensor:
    """N / (K n) for a class with n of the N images, where K classes have any, and 0 for one without; float32 [classes].

    So the weights of all images have mean 1, and those of each class the same sum (King and Zeng 2001, "Logistic
    Regression in Rare Events Data", section 4.2). targets: int64 [N], 0 to `classes` - 1.
    """
    counts = torch.bincount(targets, minlength=classes)
    return torch.where(counts > 0, len(targets) / ((counts > 0).sum() * counts), 0.0).float()


def cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Mean over the B images of cross-entropy times the weight of the image's class, in nats, [].

    logits: float32 [B, K]; targets: int64 [B]; weights: float32 [K], or None where all are 1. The mean is over B and
    not over the sum of weights, so that the mean of equal shares of a batch is that of the batch.
    """
    if weights is None:
        return F.cross_entropy(logits, targets)
    return F.cross_entropy(logits, targets, weights, reduction="sum") / len(targets)
