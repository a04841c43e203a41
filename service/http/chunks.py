"""A limit on tiny chunks of a body (RFC 9112, section 7.1): each takes as long to read as a chunk of a kilobyte."""

from __future__ import annotations

import h11

# Key of a scope's state, if the rest of its body is not read because it comes in tiny chunks.
IN_TINY_CHUNKS = "in_tiny_chunks"

LEAST = 64  # bytes in a chunk that is not tiny
_TINY = 500  # chunks that a body may have


class Chunks:
    """A token bucket for the chunks of one body.

    Every chunk takes one token, and every `LEAST` bytes give one back, up to the `_TINY` tokens of the start: so large
    chunks do not pay for many tiny ones.
    """

    def __init__(self) -> None:
        self._tokens: float = _TINY

    def add(self, data: h11.Data) -> None:
        """Counts a chunk, or a part of one; bodies without chunks are never tiny."""
        self._tokens = min(_TINY, self._tokens + len(data.data) / LEAST) - data.chunk_end

    @property
    def tiny(self) -> bool:
        """Whether too many of the chunks were tiny."""
        return self._tokens < 0
