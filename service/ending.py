"""The end of a process: how long it may take, also with threads that do not end, as those that wait for a device that
no longer answers."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from typing import NoReturn

from service.settings import Settings

logger = logging.getLogger(__name__)

FAILED = 1  # as an exit code

# Once all that was accepted is answered, or its time is over: seconds in which threads end that nothing keeps, then
# the collector takes the last traces, and then Python ends.
THREADS_SECONDS = 3.0
TRACES_SECONDS = 5.0
_REST_SECONDS = 2.0


def longest_end(settings: Settings) -> float:
    """Seconds in which a process has ended that was told to, if it ever does."""
    answered = settings.shutdown_delay + math.ceil(settings.drain_seconds)  # as Uvicorn counts
    return answered + THREADS_SECONDS + TRACES_SECONDS + _REST_SECONDS


def end_without(threads: Sequence[str]) -> NoReturn:
    """Ends the process as one that failed. Python itself would wait for these threads."""
    logger.error("the service ends without threads that do not end: %s", ", ".join(threads))
    logging.shutdown()
    os._exit(FAILED)
