"""A model with other parameters in the place of its own, while it stays as it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fpet.inference.skeleton import Skeleton


class Net(nn.Module):
    """Two layers, one of them in two places, and one that has no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(3, 3, bias=False), nn.Linear(3, 2), nn.ReLU()
        self.again = nn.ModuleList([self.first])
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.act(self.again[0](self.first(x)) + self.shift))
        return y


def test_it_computes_with_what_is_given_and_the_model_with_its_own() -> None:
    model, other, x = Net(), Net(), torch.randn(4, 3)
    before = model(x)
    given = list(other.parameters())
    filled = Skeleton(model, list(model.parameters())).filled(given)
    assert torch.equal(filled(x), other(x))
    assert not torch.equal(before, other(x))
    assert torch.equal(model(x), before)
    assert all(one is two for one, two in zip(filled.parameters(), given, strict=True))
    assert filled.again[0] is filled.first


def test_what_is_not_replaced_is_shared() -> None:
    model = Net()
    filled = Skeleton(model, list(model.second.parameters())).filled([torch.ones(2, 3), torch.zeros(2)])
    assert filled.first is model.first
    assert filled.act is model.act
    assert filled.shift is model.shift
    assert filled.second is not model.second
    assert isinstance(filled, Net)
    assert Skeleton(model, []).filled([]) is not model
