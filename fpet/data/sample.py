"""Fixed, balanced samples of a larger set of labelled images."""

from __future__ import annotations

import torch
from torch import Tensor

# No option of the named sources: with another seed a test image of one run would be a training image of the next.
_SEED = 0


def stratified_order(targets: Tensor, seed: int = _SEED) -> Tensor:
    """An order of all images, int64 [N], of which every prefix has the classes in their proportions.

    targets: int64 [N]. seed: 0 to 2^63 - 1; the order depends on it and the targets alone. The images of a class are
    shuffled and then spread evenly over the whole order, so that a slice of it is a random sample in which the share
    of a class is exact to about one image.
    """
    generator = torch.Generator().manual_seed(seed)
    place = torch.empty(targets.shape[0], dtype=torch.float64)
    for target in targets.unique():
        members = (targets == target).nonzero()[:, 0]
        shuffled = members[torch.randperm(members.shape[0], generator=generator)]
        place[shuffled] = (torch.arange(members.shape[0], dtype=torch.float64) + 0.5) / members.shape[0]
    return place.argsort(stable=True)
