"""A sketch of an image: what a linear layer should be able to read off its features besides the class.

Histograms of oriented gradients (Dalal and Triggs, 2005), as masked feature prediction uses them (Wei et al., 2022),
and brightness, on a grid of cells. A class says little about an image, and the images of a short run are few; the
sketch has much to say about each, and keeps in the features where things are, which a class alone lets go.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

CELLS, BINS = 14, 9
DIM = (BINS + 1) * CELLS**2
_CELL = 4  # pixels of the image that gradients are taken from, to a cell's side
_EVEN = 0.02  # gradient below which a place counts as even
_BRIGHTNESS = 0.4  # weight, so that neither part of the sketch outweighs the other


def sketch(views: Tensor) -> Tensor:
    """Views in [-1, 1], [B, 3, S, S] -> [B, DIM]: orientations (0 to 180 degrees) and brightness of each cell."""
    side = CELLS * _CELL
    grey = views.mean(dim=1, keepdim=True)
    grey = F.interpolate(grey, (side, side), mode="bilinear", antialias=grey.shape[-1] > side)
    orientations = _orientations(grey / 2)
    energy = F.pad(orientations.square().sum(dim=1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    orientations = orientations / (F.avg_pool2d(energy, 3, 1).sqrt() + _EVEN)
    return torch.cat([orientations, _BRIGHTNESS * F.avg_pool2d(grey, _CELL)], dim=1).flatten(1)


def _orientations(grey: Tensor) -> Tensor:
    """Gradients' lengths by their direction, averaged over cells: [B, BINS, CELLS, CELLS]."""
    padded = F.pad(grey, (1, 1, 1, 1), mode="replicate")
    right = padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]
    down = padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]
    length = (right.square() + down.square()).sqrt()
    bin_ = torch.atan2(down, right).remainder(math.pi) / math.pi * BINS
    first, share = bin_.floor().long() % BINS, bin_.frac()
    histogram = torch.zeros(len(grey), BINS, *grey.shape[2:])
    histogram.scatter_add_(1, first, length * (1 - share))
    histogram.scatter_add_(1, (first + 1) % BINS, length * share)
    return F.avg_pool2d(histogram, _CELL)
