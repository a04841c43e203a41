"""What is done when, as a function of the fraction of the time budget that has passed."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Phase:
    """Up to the fraction `until` of the budget: images of `size` pixels, a part `drop` of the patches left out.

    merging: the part of the steps in which half of the patches merge in one block.
    """

    until: float
    size: int
    drop: float
    merging: float = 0.0


# Small images have few tokens and so cost little; positions are resampled. The last phases are at the real size, the
# very last with every patch, so that the backbone ends on what it will be given, which is as often merged as not.
PHASES = (
    Phase(0.25, 32, 0.0),
    Phase(0.62, 56, 0.0),
    Phase(0.82, 112, 0.75),
    Phase(1.0, 112, 0.0, merging=0.5),
)
# The blocks, from 0, of which one at random merges.
MERGED_AT = range(1, 9)
_WARM_UP = 0.03
_FLOOR = 0.01
_STRONGEST, _STRONGEST_FROM = 0.7, 0.7


def phase(fraction: float) -> Phase:
    """The phase at a fraction in [0, 1] of the budget."""
    return next((p for p in PHASES if fraction < p.until), PHASES[-1])


def rate(fraction: float) -> float:
    """The learning rate relative to its peak: linear warm-up, then half a cosine down to a hundredth."""
    if fraction < _WARM_UP:
        return max(fraction / _WARM_UP, 0.01)
    done = min((fraction - _WARM_UP) / (1 - _WARM_UP), 1.0)
    return _FLOOR + (1 - _FLOOR) * 0.5 * (1 + math.cos(math.pi * done))


def strength(fraction: float) -> float:
    """The strength of augmentation, rising from 0.05 to 0.7 over the first seven tenths of the budget."""
    return 0.05 + (_STRONGEST - 0.05) * min(fraction / _STRONGEST_FROM, 1.0)
