"""Pictures to ask the service about by its client, and what its answers are compared by."""

from __future__ import annotations

import pictures
import pytest
from serving import Serving

from fpet.client import (
    Classification,
)

IMAGES = [pictures.png(seed) for seed in range(23)]


def url(service: Serving) -> str:
    """Where it is asked."""
    return str(service.client.base_url)


def labels(answers: list[Classification]) -> list[tuple[object, ...]]:
    """All that does not depend on what shared a batch, nor on the clock."""
    return [
        (one.task, one.digest, one.generation, one.tokens, [best.label for best in one.predictions]) for one in answers
    ]


def assert_alike(ours: list[Classification], others: list[Classification]) -> None:
    """Whatever shared a batch with each."""
    assert labels(ours) == labels(others)
    for one, other in zip(ours, others, strict=True):
        assert one.logits == pytest.approx(other.logits, abs=1e-5)


def requests(service: Serving, code: str, task: str = "digits") -> float:
    """How many of a task were answered with this status."""
    return service.metric("requests_total", task=task, code=code)
