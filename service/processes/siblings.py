"""What the processes of a service ask each other, over a socket of each in a folder that is only theirs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

Answer = Callable[[], Awaitable[bytes]]

# Longer than an event loop is ever busy with other requests, and shorter than probes wait.
_SECONDS = 3.0


@dataclass(frozen=True)
class Siblings:
    """The other processes that answer on the same port; without a folder there are none.

    folder: where each has a socket, named by its number; number: of this process, below count; count: of all.
    """

    folder: Path | None = None
    number: int = 0
    count: int = 1

    @asynccontextmanager
    async def answering(self, answers: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers the others' questions, one line each, until the end of the block."""
        if self.folder is None:
            yield
            return
        async with await asyncio.start_unix_server(partial(_answer, answers), self.folder / str(self.number)):
            yield

    async def ask(self, question: str) -> list[bytes | None]:
        """What each of the others answers; None: it is not there, as while it starts and once it has ended.

        Raises:
            TimeoutError: if one is there and does not answer.
        """
        if self.folder is None:
            return []
        others = [self.folder / str(number) for number in range(self.count) if number != self.number]
        async with asyncio.timeout(_SECONDS):
            return list(await asyncio.gather(*(_ask(other, question) for other in others)))


ALONE = Siblings()


async def _ask(socket: Path, question: str) -> bytes | None:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    try:
        writer.write(f"{question}\n".encode())
        return await reader.read() or None  # nothing, if it ends while it is asked
    except ConnectionError:
        return None
    finally:
        writer.close()


async def _answer(answers: Mapping[str, Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        question = (await reader.readline()).decode().rstrip("\n")
        writer.write(await answers[question]())
        await writer.drain()
    finally:
        writer.close()
