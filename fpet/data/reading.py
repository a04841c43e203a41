"""What the reader of a user's folder may be told."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from fpet.errors import DataError

_SEEDS = 2**63  # torch's generators take no larger one


@dataclass(frozen=True)
class Reading:
    """How to read a folder; None or False where nothing is said.

    shots, shots_seed: images a class and draw of a few-shot list. split_seed: of the split of one folder into three, 0
    to 2^63 - 1. skip_broken: leave out pictures that are missing or do not decode, instead of refusing the data.

    Raises:
        DataError: if split_seed is out of range.
    """

    shots: int | None = None
    shots_seed: int | None = None
    split_seed: int | None = None
    skip_broken: bool = False

    def __post_init__(self) -> None:
        if self.split_seed is not None and not 0 <= self.split_seed < _SEEDS:
            raise DataError(f"split_seed = {self.split_seed} is not between 0 and {_SEEDS - 1}")

    def allow(self, data: str, *options: str) -> None:
        """Raises DataError if a field other than `options` is set; data: what the refused field would not apply to."""
        for field in dataclasses.fields(self):
            if field.name not in options and getattr(self, field.name) != field.default:
                raise DataError(f"{field.name} does not apply to {data}")
