"""Follows the task folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from watchfiles import awatch

logger = logging.getLogger(__name__)

# Milliseconds. What is copied in pieces is looked at again and again; only whole files can be put into service.
_STEP, _DEBOUNCE = 10, 200


async def follow(folder: Path, changed: Callable[[], Awaitable[object]]) -> None:
    """Calls `changed` once at the start and then whenever something in the folder changed, until it is cancelled."""
    while True:
        try:
            await changed()  # what changed before the watch began
            async for _ in awatch(folder, step=_STEP, debounce=_DEBOUNCE, recursive=False):
                await changed()
        except Exception:
            logger.exception("the task folder cannot be followed; trying again")
            await asyncio.sleep(1)
