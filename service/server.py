"""Uvicorn that turns readiness off, and goes on serving for a moment, before it stops accepting."""

from __future__ import annotations

import asyncio
import math
import socket

import uvicorn
from fastapi import FastAPI

from service.limits import MAX_HEAD_BYTES
from service.protocol import impatient
from service.settings import Settings

# Longer than load balancers keep an idle connection: if they close it, no request can cross with the closing.
_KEEP_ALIVE_SECONDS = 75


class Server(uvicorn.Server):
    """Serves the app until a signal; SIGTERM leaves load balancers `shutdown_delay` seconds to look elsewhere."""

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=impatient(settings.deadline),
            h11_max_incomplete_event_size=2 * MAX_HEAD_BYTES,  # beyond it, the answer is not ours but the protocol's
            ws="none",
            log_config=None,
            log_level=settings.log_level,
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
            server_header=False,
        )
        super().__init__(config)
        self._app = app
        self._delay = settings.shutdown_delay

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called when the server is asked to stop, while its sockets still accept."""
        self._app.state.runtime.status = "draining"
        await asyncio.sleep(self._delay)
        await super().shutdown(sockets)
