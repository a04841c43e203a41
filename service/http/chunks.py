"""A body in tiny chunks (RFC 9112, section 7.1), each of which takes as long to read as one of a kilobyte."""

from __future__ import annotations

import h11

# Of a scope's state, if the rest of its body is not read because it comes in tiny chunks.
IN_TINY_CHUNKS = "in_tiny_chunks"

LEAST = 64  # bytes in a chunk that is not tiny
_TINY = 500  # chunks that a body may have


class Chunks:
    """Those of one body, as they come.

    Every chunk takes something of what a body is granted, and its bytes give something back, but never more than was
    granted first: large chunks do not pay for a rush of tiny ones.
    """

    def __init__(self) -> None:
        self._granted: float = _TINY

    def add(self, data: h11.Data) -> None:
        """Counts a chunk, or a part of one; bodies without chunks are never tiny."""
        self._granted = min(_TINY, self._granted + len(data.data) / LEAST) - data.chunk_end

    @property
    def tiny(self) -> bool:
        """Whether too many of them were."""
        return self._granted < 0
