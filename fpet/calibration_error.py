"""How far probabilities are from how often answers are right."""

from __future__ import annotations

import torch
from torch import Tensor

BINS = 15  # as in the source


def calibration_error(probabilities: Tensor, right: Tensor) -> float:
    """The expected calibration error, 0 to 1: by how much the mean probability of answers differs from the share of
    right ones, over 15 bins of probability of one width, weighted by their numbers of images.

    Source: Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017), equation 3.

    probabilities: float [N], 0 to 1, of the answers; right: bool [N].
    """
    bins = (probabilities.double() * BINS).long().clamp_(max=BINS - 1)
    differences = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, probabilities.double() - right.double())
    return float(differences.abs().sum()) / len(right)
