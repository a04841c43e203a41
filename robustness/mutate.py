"""Seeded mutations of bytes and of JSON; what they make of the same bytes and the same random numbers is the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

# Gives other bytes than those given; the last are bytes of the same kind, to take parts from.
Mutate = Callable[[Random, bytes, Sequence[bytes]], bytes]

_COUNTS = (1, 1, 1, 2, 4, 8)
_WIDTHS = (1, 2, 4, 8)
_LONGEST_PART = 64
# Where signed, unsigned and floating numbers of each width end, and sizes that multiply to much.
_NUMBERS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)
_DEEP: Any = json.loads("[" * 900 + "]" * 900)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 100_000, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e-320,
    1e308, 1e400, float("nan"), "", "a", "../../x", "x\0y", "\ud800", "é\u202e" * 40, "9" * 5000, "x" * 20_000, [], {},
    [[]], [{}], [0] * 3000, [1, 3, 16, 16], [-1, 3, 16, 16], [2**31, 2**31, 2**31], {"a": {"a": {}}}, _DEEP,
)  # fmt: skip


def mutate(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """A few changes anywhere: bits, numbers, parts copied, moved, taken from a donor or left out, the end cut off."""
    for _ in range(random.choice(_COUNTS)):
        change: Mutate = random.choice(_CHANGES)
        data = change(random, data, donors)
    return data


def mutate_json(random: Random, text: str) -> str:
    """A document in which one value is another, lacks, or has another name; or text that is perhaps no JSON."""
    document = json.loads(text)
    places = list(_places(document))
    if not places or random.random() < 0.1:
        return mutate(random, text.encode(), [text.encode()]).decode("latin-1")
    container, key = random.choice(places)
    match random.randrange(6):
        case 0 if isinstance(container, dict):
            container[random.choice(("", "x", "é" * 300, "__class__", f"{key}2"))] = container.pop(key)
        case 1:
            del container[key]
        case 2 if isinstance(container, list):
            container.extend([container[key]] * random.choice((1, 2, 100)))
        case 3:
            other, name = random.choice(places)
            container[key] = json.loads(json.dumps(other[name]))
        case _:
            container[key] = random.choice(_VALUES)
    return json.dumps(document)


def _places(value: Any) -> Any:
    """Every container and key in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key
        yield from _places(item)


def _flip(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _number(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    """Headers lie at the beginning, so that is where half of the numbers go."""
    width = random.choice(_WIDTHS)
    at = random.randrange(min(len(data), 64) + 1 if random.random() < 0.5 else len(data) + 1)
    value = random.choice(_NUMBERS) % (1 << 8 * width)
    return data[:at] + value.to_bytes(width, random.choice(("big", "little"))) + data[at + width :]


def _noise(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    start, end = _part(random, data)
    return data[:start] + random.randbytes(end - start) + data[end:]


def _remove(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    start, end = _part(random, data)
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    start, end = _part(random, data)
    return data[:end] + data[start:end] * random.choice((1, 2, 50)) + data[end:]


def _splice(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    donor = random.choice(donors)
    start, end = _part(random, donor)
    at = random.randrange(len(data) + 1)
    return data[:at] + donor[start:end] + data[at + random.choice((0, end - start)) :]


def _join(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    donor = random.choice(donors)
    return data[: random.randrange(len(data) + 1)] + donor[random.randrange(len(donor) + 1) :]


def _cut(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    return data[: random.randrange(len(data) + 1)]


def _part(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.randrange(1, _LONGEST_PART + 1))


_CHANGES: tuple[Mutate, ...] = (_flip, _flip, _number, _number, _noise, _remove, _repeat, _splice, _join, _cut)
