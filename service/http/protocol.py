"""Uvicorn's HTTP/1.1 protocol with timeouts for clients that send or read slowly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from service.errors import BadRequestError, ServiceError
from service.http.chunks import IN_TINY_CHUNKS
from service.http.connection import Connection
from service.http.exchange import UNTAKEN
from service.http.failures import Failure
from service.http.head_coalescing import HeadCoalescer
from service.http.limits import NO_HTTP
from service.http.request_id import HEADER, identified, new_id

logger = logging.getLogger(__name__)

# Bytes. What was read at once is parsed at once, while everybody else waits; so of heads and chunks little is read. Of
# what takes no time to parse it is as much as most images have, and four times less than is asyncio's own.
_LITTLE = 2**13
_MUCH = 2**16


class _TimedProtocol(H11Protocol):
    patience: float
    refuse: Callable[[ServiceError], None]
    conn: Connection

    _transport: asyncio.Transport
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.conn = Connection()
        self._transport = transport
        self._read_at_once(_LITTLE)
        # Writing pauses as soon as the system takes no more, however little is left: from then on the client's time
        # counts. Otherwise the end of an answer could wait, and keep its connection, for ever.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(HeadCoalescer(transport, self.conn))  # type: ignore[arg-type]
        self._wait()

    def data_received(self, data: bytes) -> None:
        if self.conn.in_tiny_chunks:
            return  # taken from a client that could not read its answer otherwise, and not looked at
        dropping = self._dropping()
        super().data_received(data)
        if self.conn.in_tiny_chunks:
            self._end_in_tiny_chunks()
        self._read_at_once(_MUCH if self.conn.takes_no_time else _LITTLE)
        if self.conn.their_state is h11.IDLE and dropping:
            self._stop()
            # When what was dropped arrived, Uvicorn ended its own timer of idle connections.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self.conn.their_state is not h11.IDLE and not self._dropping():
            self._stop()
        elif self._timer is None:
            self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.in_tiny_chunks:  # of this request, or of one that came along with it
            self._end_in_tiny_chunks()
        if self._dropping():
            self._wait()
        elif self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._unset_keepalive_if_required()
            self._wait()  # a part of the next head came along with the request

    def send_400_response(self, msg: str) -> None:
        """Called when what arrives is no HTTP; in the middle of a body it is the application that answers."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.message_event.set()
            if self.conn.our_state is h11.SEND_RESPONSE:
                self.cycle.scope["state"][NO_HTTP] = msg
                self.cycle.more_body = False  # and nothing is read any more
                return
            self.cycle.disconnected = True  # the rest of its answer would reach nobody
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer is out, or a part of it
            self.transport.close()
            return
        error, own_id = BadRequestError(msg), new_id()
        self.refuse(error)
        with identified(own_id):
            peer = {"client": self.client and self.client[0], "status": error.status, "error_type": error.error_type}
            logger.info("refused what is no HTTP", extra={"fields": peer})
        response = Failure.of(error).response()
        own = [(b"connection", b"close"), (HEADER.encode(), own_id.encode())]
        head = h11.Response(status_code=400, headers=[*response.raw_headers, *own], reason=b"Bad Request")
        with suppress(h11.LocalProtocolError):  # as for the body of an answer to HEAD
            for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """A request for another protocol is served as if it were none (RFC 9110, section 7.8)."""
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.patience, self._abort)

    def resume_writing(self) -> None:
        self._stop_writing()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_writing()
        super().connection_lost(exc)
        # Uvicorn does so only if nothing went wrong: of each connection that is reset while it is idle, the timer would
        # keep all there is, and the last request, until it ends.
        self._unset_keepalive_if_required()

    def _dropping(self) -> bool:
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _read_at_once(self, size: int) -> None:
        self._transport.max_size = size  # type: ignore[attr-defined]  # of asyncio's own transports

    def _end_in_tiny_chunks(self) -> None:
        if self._dropping():
            self.transport.write_eof()  # so that nobody waits for the answer to another request
        else:
            self.cycle.scope["state"][IN_TINY_CHUNKS] = True  # for whoever reads the body

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.patience, self.transport.close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _abort(self) -> None:
        if self.cycle is not None:
            self.cycle.scope["state"][UNTAKEN] = True  # Uvicorn lets `send` return as if all were well
        self.transport.abort()  # to close would wait for the client to read


def timed_protocol(seconds: float, refused: Callable[[ServiceError], None]) -> type[H11Protocol]:
    """Uvicorn's protocol with a timeout of so many seconds for each of these; the connection ends when one passes:

    - a request's head, from the connection on, or for further requests from their first byte on;
    - the rest of a body that is dropped because it was answered before it had arrived, from the answer on;
    - the client's reading of what was written to it. The state of the request's scope then has `UNTAKEN`.

    Bodies that are read and connections that are idle between requests have timeouts elsewhere.

    refused: called with the error that answers what is no HTTP, and so reaches no application.
    """

    class TimedProtocol(_TimedProtocol):
        patience = seconds
        refuse = staticmethod(refused)

    return TimedProtocol
