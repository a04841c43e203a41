"""What a task says of an image, in this process or as a service answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prediction:
    """A label; index: its place among the task's labels; probability: softmax over all of them."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of an image at the first block and after the last.

    Where each image decides how many, `out` of a service's answer is the most that any of the request's images kept,
    and of a task the most that any image may keep.
    """

    into: int
    out: int


@dataclass(frozen=True)
class Classification:
    """What a task says of an image; predictions: as many as were asked for, best first."""

    predictions: tuple[Prediction, ...]
    tokens: TokenCounts

    @property
    def best(self) -> Prediction:
        """The most probable label."""
        return self.predictions[0]
