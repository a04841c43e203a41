"""Numbers, lists, errors of others and what files hold, in messages and output."""

from __future__ import annotations

from collections.abc import Iterable

_NAMED = 10


def count(number: int, noun: str) -> str:
    """`1 epoch`, `2 epochs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first(names: Iterable[str], separator: str = ", ", most: int = _NAMED) -> str:
    """The first `most` of the names, and how many more there are: a thousand would hide the rest of a message."""
    listed = list(names)
    more = [f"and {len(listed) - most} more"] if len(listed) > most else []
    return separator.join(listed[:most] + more)


def shown(value: object) -> str:
    """A value of a file as one line, escaped if it would control the terminal or look like several lines."""
    text = str(value)
    return text if text.isprintable() else ascii(text)


def printable(text: str) -> str:
    """The text on one line, with escapes for characters that cannot be printed."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def reason(error: Exception) -> str:
    """The first line of what an error says, or its name if it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__
