"""What autograd keeps is counted: each piece of memory once, and nothing that is the model's own."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor, nn

from fpet.training.memory import saved_bytes

WEIGHT = nn.Parameter(torch.ones(8, 8))


def test_only_what_the_backward_pass_needs_counts() -> None:
    x = torch.ones(5, 8)
    assert saved_bytes(lambda: x @ WEIGHT, [WEIGHT]) == 5 * 8 * 4  # the input
    assert saved_bytes(lambda: x + WEIGHT[:5], [WEIGHT]) == 0  # a sum needs nothing
    assert saved_bytes(lambda: x @ WEIGHT.detach(), [WEIGHT]) == 0  # nothing trains


def test_views_of_one_memory_count_once_and_whole() -> None:
    x = torch.ones(6, 8)
    assert saved_bytes(lambda: x[:3] @ WEIGHT + x[3:] @ WEIGHT, [WEIGHT]) == 6 * 8 * 4
    assert saved_bytes(lambda: (x @ WEIGHT).exp() @ WEIGHT, [WEIGHT]) == 2 * 6 * 8 * 4


def test_a_weight_that_is_not_the_models_counts() -> None:
    other = nn.Parameter(torch.ones(8, 8))
    x = torch.ones(6, 8, requires_grad=True)
    assert saved_bytes(lambda: x @ other, [WEIGHT]) == (6 * 8 + 8 * 8) * 4
    assert saved_bytes(lambda: x @ other, [other]) == 6 * 8 * 4


def test_nothing_is_kept_afterwards() -> None:
    kept: list[weakref.ref[Tensor]] = []

    def loss() -> Tensor:
        exponential = (torch.ones(6, 8) @ WEIGHT).exp()  # whose backward pass needs its own output
        kept.append(weakref.ref(exponential))
        return exponential.sum()

    assert saved_bytes(loss, [WEIGHT]) == 2 * 6 * 8 * 4
    assert [one() for one in kept] == [None]


def test_what_the_loss_does_not_need_does_not_count() -> None:
    x = torch.ones(5, 8)

    def loss() -> Tensor:
        unused = (x @ WEIGHT).exp() @ WEIGHT
        del unused
        return torch.ones(3, 8) @ WEIGHT

    assert saved_bytes(loss, [WEIGHT]) == 3 * 8 * 4
