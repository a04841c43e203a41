"""Requests between the processes of a service, over a Unix socket of each in a folder of their own."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import cast

from service.processes.messages import PeerMessage, receive, send

NOTHING = PeerMessage()
# Called with the message of a request; returns the answer.
Answer = Callable[[PeerMessage], Awaitable[PeerMessage]]

# Timeouts in seconds. Shorter than that of a Kubernetes probe by default, which is one second.
AT_ONCE = 0.8
# Much longer than an event loop should be busy with other requests.
SOON = 3.0
# Much longer than it should take to read, build and fold a task, and those that are to be changed before it.
LATER = 120.0

_BACKLOG = 4096  # connections that wait until they are accepted


class Silence(Enum):
    """Why a process did not answer."""

    STARTING = "it is not there yet"
    ENDED = "it is not there any more"
    LOST = "it ended while it was asked"
    UNASKED = "it cannot be asked"


class Peers:
    """The other processes that answer on the same port; without a folder there are none.

    folder: where each process has a socket, named by its number; number: of this process, below count; count: of all
    processes; started: when the service was, in seconds since 1970.
    """

    def __init__(self, folder: Path | None = None, number: int = 0, count: int = 1, started: float = 0) -> None:
        self.folder = folder
        self.number = number
        self.count = count
        self.started = started
        self._met: set[int] = set()  # those that have been there: without a socket now, they have ended

    @property
    def alone(self) -> bool:
        """Whether there are no others."""
        return self.folder is None

    @property
    def first(self) -> bool:
        """Whether this process is the one that changes the tasks, which the others repeat."""
        return self.number == 0

    def agreed(self, what: str, choose: Callable[[], str]) -> str:
        """The value that the first process to call this chooses, as `what`; the others wait for it and get the same.

        If each chose by its own measurement, they might differ.
        """
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
        """Answers requests of the others until the end of the block; answers: by the word of the request."""
        if self.folder is None:
            yield
            return
        path = self._socket(self.number)
        under_way: set[asyncio.Task[None]] = set()
        server = await asyncio.start_unix_server(partial(_answer, answers, under_way), path, backlog=_BACKLOG)
        try:
            yield
        finally:
            server.close()
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await asyncio.sleep(0)  # in which their connections are closed
            with suppress(FileNotFoundError):  # the folder may be gone
                path.touch()  # newer Pythons remove it, by which the others tell that this one has been there

    async def ask(self, word: str, about: PeerMessage = NOTHING, seconds: float = SOON) -> list[PeerMessage | Silence]:
        """What each of the others answers, or why it does not.

        Raises:
            TimeoutError: if one of them is there and does not answer within so many seconds.
        """
        others = (number for number in range(self.count) if number != self.number)
        return list(await asyncio.gather(*(self._ask(number, word, about, seconds) for number in others)))

    async def ask_first(self, word: str, about: PeerMessage, seconds: float) -> PeerMessage | Silence:
        """What the first process answers, or why it does not; raises as `ask` does."""
        return await self._ask(0, word, about, seconds)

    async def _ask(self, number: int, word: str, about: PeerMessage, seconds: float) -> PeerMessage | Silence:
        try:
            async with asyncio.timeout(seconds):
                told = await _ask(self._socket(number), word, about)
        except TimeoutError as error:
            raise TimeoutError(f"one of the processes did not answer within {seconds:g} seconds") from error
        if told is Silence.STARTING and number in self._met:
            return Silence.ENDED
        if told not in (Silence.STARTING, Silence.UNASKED):
            self._met.add(number)
        return told

    def _socket(self, number: int) -> Path:
        assert self.folder is not None, "there are no other processes"
        return self.folder / str(number)


ALONE = Peers()


async def _ask(socket: Path, word: str, about: PeerMessage) -> PeerMessage | Silence:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except FileNotFoundError:
        return Silence.STARTING
    except ConnectionRefusedError:
        return Silence.ENDED
    except OSError:  # as while this process has no descriptor left, which says nothing about the other
        return Silence.UNASKED
    try:
        if not _connected(writer):
            raise TimeoutError
        writer.write(f"{word}\n".encode())
        await send(writer, about)
        return await receive(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        return Silence.LOST
    finally:
        writer.close()


def _connected(writer: asyncio.StreamWriter) -> bool:
    """False if the listener's backlog is full, so that the connection is not made, which asyncio does not notice."""
    try:
        writer.get_extra_info("socket").getpeername()
    except OSError:
        return False
    return True


async def _answer(
    answers: Mapping[str, Answer],
    under_way: set[asyncio.Task[None]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    task = cast("asyncio.Task[None]", asyncio.current_task())
    under_way.add(task)
    task.add_done_callback(under_way.discard)
    try:
        # Who asked may wait no longer; and that this ends is no error, which asyncio of Python 3.11 takes it for.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            word = (await reader.readuntil(b"\n")).decode().strip()
            await send(writer, await answers[word](await receive(reader)))
    finally:
        writer.close()
