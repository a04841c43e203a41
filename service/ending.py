"""Bounds on how long a process takes to end, even if threads hang, as those that wait for a device that no longer
answers."""

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
    """The longest time in seconds that a process takes to end, from the signal on, unless it hangs."""
    answered = settings.shutdown_delay + math.ceil(settings.drain_seconds)  # as Uvicorn counts
    return answered + THREADS_SECONDS + TRACES_SECONDS + _REST_SECONDS


def end_without(threads: Sequence[str]) -> NoReturn:
    """Ends the process with the exit code `FAILED` without waiting for these threads, as Python itself would."""
    logger.error("the service ends without threads that do not end: %s", ", ".join(threads))
    logging.shutdown()
    os._exit(FAILED)
