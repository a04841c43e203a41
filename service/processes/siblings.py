"""What the processes of a service ask each other, over a socket of each in a folder that is only theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

# Called with what is asked about; what it answers is never empty.
Answer = Callable[[bytes], Awaitable[bytes]]

# Longer than an event loop is ever busy with other requests, and shorter than probes wait.
SOON = 3.0
# Longer than it takes to read, build and fold a task, and those that are to be changed before it.
LATER = 120.0


@dataclass(frozen=True)
class Siblings:
    """The other processes that answer on the same port; without a folder there are none.

    folder: where each has a socket, named by its number; number: of this process, below count; count: of all.
    """

    folder: Path | None = None
    number: int = 0
    count: int = 1

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.folder is None

    @asynccontextmanager
    async def answering(self, answers: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers what the others ask until the end of the block; answers: by the word that they ask with."""
        if self.folder is None:
            yield
            return
        async with await asyncio.start_unix_server(partial(_answer, answers), self._socket(self.number)):
            yield

    async def ask(self, word: str, about: bytes = b"", seconds: float = SOON) -> list[bytes | None]:
        """What each of the others answers; None: it is not there, as while it starts and once it has ended.

        Raises:
            TimeoutError: if one is there and has not answered after so many seconds.
        """
        others = [number for number in range(self.count) if number != self.number]
        async with asyncio.timeout(seconds):
            return list(await asyncio.gather(*(_ask(self._socket(number), word, about) for number in others)))

    async def ask_first(self, word: str, about: bytes) -> bytes | None:
        """What the first process answers, however long that takes; None: it is not there."""
        return await _ask(self._socket(0), word, about)

    def _socket(self, number: int) -> Path:
        assert self.folder is not None, "there are no other processes"
        return self.folder / str(number)


ALONE = Siblings()


async def _ask(socket: Path, word: str, about: bytes) -> bytes | None:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    try:
        writer.write(f"{word} {len(about)}\n".encode() + about)
        return await reader.read() or None  # nothing, if it ends while it is asked
    except ConnectionError:
        return None
    finally:
        writer.close()


async def _answer(answers: Mapping[str, Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        word, length = (await reader.readline()).split()
        writer.write(await answers[word.decode()](await reader.readexactly(int(length))))
        await writer.drain()
    finally:
        writer.close()
