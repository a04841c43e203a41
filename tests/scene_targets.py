"""Targets of scenes that are looked at closely."""

from __future__ import annotations

SOME = 300  # scenes, where each is looked at closely


def cycle(classes: int, count: int = SOME) -> list[int]:
    """All classes in turn, again and again."""
    return [i % classes for i in range(count)]
