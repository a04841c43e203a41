"""Watches the task folder for changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from watchfiles import awatch

from fpet.errors import FpetError

logger = logging.getLogger(__name__)

# Milliseconds. What is copied in pieces is looked at again and again; only whole files can be put into service.
_STEP, _DEBOUNCE = 10, 200
# Looked at without an event too: file systems on a network have none, nor has what changes before the watch begins.
_INTERVAL = 2000


async def follow(folder: Path, changed: Callable[[], Awaitable[object]]) -> None:
    """Calls `changed` at the start, whenever something in the folder changes, and every other second, until it is
    cancelled. While that fails it is tried again, which is said once."""
    failing = False
    while True:
        try:
            await changed()
            async for _ in awatch(
                folder, step=_STEP, debounce=_DEBOUNCE, recursive=False, rust_timeout=_INTERVAL, yield_on_timeout=True
            ):
                await changed()
                failing = False
        except Exception as raised:
            error = _alone(raised)
            if not failing:
                logger.error(
                    "the task folder cannot be followed; trying again: %s",
                    error,
                    exc_info=None if _is_foreseen(error) else error,
                )
            failing = True
            await asyncio.sleep(1)


def _alone(error: Exception) -> Exception:
    """The error that a group holds, if it holds no other."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        (error,) = error.exceptions
    return error


def _is_foreseen(error: Exception) -> bool:
    """Whether the folder cannot be reached, or its name or that of a file in it is not UTF-8, which watchfiles does not
    take; it has no public name for the last of these."""
    return isinstance(error, (FpetError, OSError, UnicodeEncodeError)) or str(error).startswith("Unable to decode path")
