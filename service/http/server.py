"""Uvicorn with a graceful shutdown: the service turns unready and goes on serving for a moment before it stops
accepting. It ends by itself if the service cannot start."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from service.ending import FAILED
from service.errors import ServiceError
from service.http.accept_errors import AcceptErrorHandler
from service.http.close_listeners import close_listeners
from service.http.listening import bind
from service.http.protocol import timed_protocol
from service.settings import Settings

logger = logging.getLogger(__name__)

# For the first request of a connection that was accepted at the end.
_FIRST_SECONDS = 0.5
_LOOK_SECONDS = 0.02


class Served(Protocol):
    """An ASGI application as the server needs it."""

    @property
    def failed(self) -> bool:
        """Whether the application could not start, or cannot go on, so that the server is to end."""

    def stop(self) -> None:
        """Called when the server begins to stop, while it still accepts."""

    def count_refused(self, error: ServiceError) -> None:
        """Called with the error that is answered to what is no HTTP, and so reaches no application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection."""


class Server(uvicorn.Server):
    """Serves the app until a signal; SIGTERM leaves load balancers `shutdown_delay` seconds to look elsewhere.

    failed: whether it ended because the service could not start; the log has the reason.
    """

    def __init__(self, app: Served, settings: Settings) -> None:
        self._protocol_class = timed_protocol(settings.deadline, app.count_refused)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            root_path=settings.root_path,
            http=self._protocol_class,
            loop="asyncio",  # uvloop, which Uvicorn prefers where it finds it, drops connections when files run out
            ws="none",
            log_config=None,
            log_level=settings.log_level,
            access_log=False,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
            server_header=False,
        )
        super().__init__(config)
        self._app = app
        self._delay = settings.shutdown_delay
        self.failed = False

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGHUP, which a closed terminal sends, stops as SIGTERM does, unless `nohup` asked to ignore it."""
        with super().capture_signals():
            in_main = threading.current_thread() is threading.main_thread()  # others cannot listen
            if not in_main or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called with each signal. Only the first is raised again at the end: others would interrupt the shutdown."""
        super().handle_exit(sig, frame)
        del self._captured_signals[1:]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called before anything is accepted.

        Raises:
            UnsupportedError: if the address of the settings cannot be used.
            SystemExit: if the address is taken by the time that the application has started, or that does not start.
        """
        asyncio.get_running_loop().set_exception_handler(AcceptErrorHandler())
        # asyncio itself would have all addresses of a host or none, and some machines have no IPv6 but a name for it.
        listeners = bind(self.config.host, self.config.port) if sockets is None else sockets
        try:
            await super().startup(listeners)
        except OSError as error:
            logger.error("the service cannot listen: %s", error.strerror)
            await self.lifespan.shutdown()
            sys.exit(FAILED)
        if sockets is None:  # of those that it is given Uvicorn says less
            self._log_started_message(listeners)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second; whether to stop."""
        self.failed = self._app.failed
        return self.failed or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called when the server is asked to stop, while its sockets still accept."""
        self._app.stop()
        await asyncio.sleep(self._delay)
        await close_listeners(self.servers, self._protocol)
        self.servers = []  # from Python 3.12 Uvicorn would wait for their connections, whoever asks twice to stop
        await self._first_requests()
        await super().shutdown(sockets)
        if self.force_exit:  # by a second SIGINT: what goes on would be cancelled later, and the application's end too
            for task in self.server_state.tasks:
                task.cancel()
            await self.lifespan.shutdown()

    def _protocol(self) -> asyncio.Protocol:
        return self._protocol_class(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def _first_requests(self) -> None:
        """Waits a moment for those of connections that have had none: Uvicorn would close them, unread."""
        give_up = time.monotonic() + _FIRST_SECONDS
        while time.monotonic() < give_up and any(one.cycle is None for one in self.server_state.connections):  # type: ignore[union-attr]
            await asyncio.sleep(_LOOK_SECONDS)
