"""The server's side of an h11 connection, with limits on what one client may cost the others."""

from __future__ import annotations

import re

import h11

from service.http.chunks import Chunks
from service.http.limits import MAX_HEAD_BYTES
from service.http.origin_form import in_origin_form

# Some clients end a body with one, which is neither a part of it nor of the next request (RFC 9112, section 2.2).
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")


class Connection(h11.Connection):
    """The server's side of a connection.

    in_tiny_chunks: whether a body came in too many of them. Nothing is read any more then, so that no request can
    follow.
    """

    def __init__(self) -> None:
        # Of a longer head not even the refusal is ours: the protocol ends the connection.
        super().__init__(h11.SERVER, max_incomplete_event_size=2 * MAX_HEAD_BYTES)
        self.in_tiny_chunks = False
        self._chunks = Chunks()
        self._chunked = False

    @property
    def takes_no_time(self) -> bool:
        """Whether the next bytes take no parsing: those of a body with a Content-Length, or what is ignored."""
        return self.in_tiny_chunks or (self.their_state is h11.SEND_BODY and not self._chunked)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Called until no more can be read.

        Raises:
            h11.RemoteProtocolError: if what came is no HTTP.
        """
        if self.in_tiny_chunks:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE and (empty := _EMPTY_LINES.match(self.trailing_data[0])):
            self._receive_buffer.maybe_extract_at_most(empty.end())
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = Chunks()
            self._chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
            return in_origin_form(event)
        if isinstance(event, h11.Data):
            self._chunks.add(event)
            self.in_tiny_chunks = self._chunks.tiny
        return event
