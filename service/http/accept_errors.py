"""What is said of connections that cannot be accepted, as while a process has no descriptor left."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
from typing import Any

logger = logging.getLogger(__name__)

_TAKEN = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_SECONDS = 10.0


class AcceptErrorHandler:
    """Exception handler of an event loop. asyncio tries an accept that failed thousands of times a second, each with a
    traceback; here it is logged every ten seconds."""

    def __init__(self) -> None:
        self._said = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Called with what nobody else has handled."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _TAKEN and "socket" in context):
            loop.default_exception_handler(context)
        elif loop.time() - self._said >= _SECONDS:
            self._said = loop.time()
            logger.error("connections cannot be accepted: %s; trying again", error.strerror)
