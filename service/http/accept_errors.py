"""The log of connections that cannot be accepted, as while the process has no file descriptor left."""

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
    """Exception handler of an event loop. asyncio retries a failed accept thousands of times a second and reports each
    with a traceback; this handler logs one line every ten seconds."""

    def __init__(self) -> None:
        self._said = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Called with every exception that nothing else in the loop has handled."""
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _TAKEN and "socket" in context):
            loop.default_exception_handler(context)
        elif loop.time() - self._said >= _SECONDS:
            self._said = loop.time()
            logger.error("connections cannot be accepted: %s; trying again", error.strerror)
