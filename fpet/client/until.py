"""The content of an answer, as long as there is time for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx


@dataclass(frozen=True, eq=False)
class Until(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A stream of the same class that raises an error at the first bytes that come after `expires`.

    httpx limits the wait for each piece alone, so that an answer that trickles in could take any time. To cancel
    httpx's coroutine instead, while it takes or returns a connection, may lose the connection for good.

    expires: by `time.monotonic`.
    """

    stream: httpx.SyncByteStream | httpx.AsyncByteStream
    expires: float

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self.stream, httpx.SyncByteStream)
        for some in self.stream:
            self._check()
            yield some

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self.stream, httpx.AsyncByteStream)
        async for some in self.stream:
            self._check()
            yield some

    def close(self) -> None:
        assert isinstance(self.stream, httpx.SyncByteStream)
        self.stream.close()

    async def aclose(self) -> None:
        assert isinstance(self.stream, httpx.AsyncByteStream)
        await self.stream.aclose()

    def _check(self) -> None:
        if time.monotonic() > self.expires:
            raise httpx.ReadTimeout("the answer is not complete")
