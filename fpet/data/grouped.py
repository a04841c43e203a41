"""Splits that keep pictures of one thing together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fpet.data.sample import stratified_order


def grouped_split(targets: Tensor, groups: Sequence[str], train: int, val: int) -> tuple[Tensor, Tensor, Tensor]:
    """The indices of the training and the validation images, and of the others, without a group in common.

    targets: int64 [N]. groups: N names; the images of a group are of one class. Returned: int64 [train], [val], [...];
    the first two are smaller if there are too few images. Whole groups are taken in a fixed random order: for
    validation first those that fit into the share of their class, then others until it is full, then for training.
    Where a split is full in the middle of a group, the rest of that group is in none.
    """
    members: dict[str, list[int]] = {name: [] for name in sorted(set(groups))}
    for index, name in enumerate(groups):
        members[name].append(index)
    firsts = torch.tensor([indices[0] for indices in members.values()])
    ordered = [list(members.values())[i] for i in stratified_order(targets[firsts]).tolist()]
    room = [math.ceil(count * val / len(groups)) for count in targets.bincount().tolist()]
    fitting: list[int] = []
    rest: list[list[int]] = []
    for indices in ordered:
        target = int(targets[indices[0]])
        if len(indices) <= min(room[target], val - len(fitting)):
            room[target] -= len(indices)
            fitting += indices
        else:
            rest.append(indices)
    validation = _take(rest, val, fitting)
    training = _take(rest, train, [])
    return training, validation, torch.tensor([index for indices in rest for index in indices], dtype=torch.int64)


def _take(groups: list[list[int]], count: int, taken: list[int]) -> Tensor:
    """Adds groups to those taken, removing them, until there are `count` indices."""
    while groups and len(taken) < count:
        taken = taken + groups.pop(0)
    return torch.tensor(taken[:count], dtype=torch.int64)
