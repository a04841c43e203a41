"""What the processes of a service ask each other, over a socket of each in a folder that is only theirs."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

# Called with what is asked about; what it answers is never empty.
Answer = Callable[[bytes], Awaitable[bytes]]

# Shorter than the second after which a probe gives up unless it is told to wait longer.
AT_ONCE = 0.8
# Longer than an event loop is ever busy with other requests.
SOON = 3.0
# Longer than it takes to read, build and fold a task, and those that are to be changed before it.
LATER = 120.0


class Silence(Enum):
    """Why a process says nothing."""

    STARTING = "it is not there yet"
    ENDED = "it has ended"
    LOST = "it ended while it was asked"


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

    def agreed(self, what: str, choose: Callable[[], str]) -> str:
        """What the first that is asked chooses, for which the others wait: measured by each, it might differ."""
        if self.folder is None:
            return choose()
        with (self.folder / what).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if not (chosen := file.read()):
                file.write(chosen := choose())
            return chosen

    @asynccontextmanager
    async def answering(self, answers: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers what the others ask until the end of the block; answers: by the word that they ask with."""
        if self.folder is None:
            yield
            return
        path = self._socket(self.number)
        server = await asyncio.start_unix_server(partial(_answer, answers), path)
        try:
            yield
        finally:
            server.close()
            path.touch()  # newer Pythons remove it, by which the others tell that this one has been there

    async def ask(self, word: str, about: bytes = b"", seconds: float = SOON) -> list[bytes | Silence]:
        """What each of the others answers, or why it does not.

        Raises:
            TimeoutError: if one is there and has not answered after so many seconds.
        """
        others = [number for number in range(self.count) if number != self.number]
        try:
            async with asyncio.timeout(seconds):
                return list(await asyncio.gather(*(_ask(self._socket(number), word, about) for number in others)))
        except TimeoutError as error:
            raise TimeoutError(f"one of the processes did not answer within {seconds:g} seconds") from error

    async def ask_first(self, word: str, about: bytes) -> bytes | Silence:
        """What the first process answers, however long that takes, or why it does not."""
        return await _ask(self._socket(0), word, about)

    def _socket(self, number: int) -> Path:
        assert self.folder is not None, "there are no other processes"
        return self.folder / str(number)


ALONE = Siblings()


async def _ask(socket: Path, word: str, about: bytes) -> bytes | Silence:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except FileNotFoundError:
        return Silence.STARTING
    except ConnectionRefusedError:
        return Silence.ENDED
    try:
        writer.write(f"{word} {len(about)}\n".encode() + about)
        return await reader.read() or Silence.LOST
    except ConnectionError:
        return Silence.LOST
    finally:
        writer.close()


async def _answer(answers: Mapping[str, Answer], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # Who asked may wait no longer.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            word, length = (await reader.readuntil(b"\n")).split()
            writer.write(await answers[word.decode()](await reader.readexactly(int(length))))
            await writer.drain()
    finally:
        writer.close()
