"""Replication of task changes: the first of several processes makes a change, and the others repeat its outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from service.errors import NotReadyError, ServiceError
from service.processes.messages import PeerMessage
from service.processes.peers import LATER, Peers, Silence
from service.runtime import Runtime
from service.tasks.entry import EntrySnapshot

logger = logging.getLogger(__name__)

CHANGE, NAMES = "change", "names"

# Seconds until a change that a process did not follow is sent again: at first, and at most after doubling each time.
_SOONEST, _LATEST = 1.0, 60.0
# Seconds between looks whether all processes are ready to be told.
_LOOK = 0.1


@dataclass(frozen=True)
class _State:
    """The state of a task that the other processes are to copy; entry: None if the task is gone."""

    task: str
    entry: EntrySnapshot | None = None
    pinned: bool = False

    @classmethod
    def parse(cls, head: dict[str, Any]) -> _State:
        entry = head.pop("entry")
        return cls(entry=entry and EntrySnapshot(**entry), **head)


@dataclass(frozen=True)
class _Retry:
    """When a task is to be sent to the others, by the monotonic clock.

    waited: the back-off in seconds, since one of them did not follow; 0 if all did.
    """

    at: float = 0.0
    waited: float = 0.0

    def later(self) -> _Retry:
        """The next try, after one of them did not follow."""
        seconds = min(_LATEST, 2 * self.waited or _SOONEST)
        return _Retry(time.monotonic() + seconds, seconds)


_NOW = _Retry()


class Changes:
    """Changes of a runtime's tasks, replicated to the other processes.

    require_ready: raises NotReadyError if one of the processes is not there, or does not answer.
    """

    def __init__(self, runtime: Runtime, peers: Peers, require_ready: Callable[[], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._peers = peers
        self._require_ready = require_ready
        # Changes are sent one at a time, so that none overtakes another.
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        # The last state of each task that all others have, None if it is not known; and those still to be sent.
        self._followed: dict[str, _State | None] = {}
        self._behind: dict[str, _Retry] = {}

    @property
    def behind(self) -> int:
        """How many tasks have a last change that one of the others may not have followed yet."""
        return len(self._behind)

    @asynccontextmanager
    async def followed(self, task: str) -> AsyncIterator[None]:
        """The block changes a task in this process; at its end the others follow, before the next change begins. If it
        raises, they are sent the state of the task all the same.

        Raises:
            NotReadyError: before the block, if one of the processes is not ready, or other changes take longer than the
                deadline of requests; after the block, if one of the others does not follow. The change is made then.
        """
        if self._peers.alone:
            yield
            return
        async with self._own_turn():
            await self._require_ready()
            try:
                yield
            except Exception:
                await self._tell(task)
                raise
            if reason := await self._tell(task):
                message = f"the change is made, but one of the processes did not follow: {reason}"
                raise NotReadyError(message, passing=False)

    def announce(self, task: str) -> None:
        """Notes that a task may have changed outside of `followed`; `share` will tell the others."""
        self._behind[task] = replace(self._behind.get(task, _NOW), at=0.0)
        self._news.set()

    async def share(self) -> None:
        """Until it is cancelled, tells the others of what was announced, and again of what one did not follow."""
        await self._runtime.warm.wait()
        for task in self._runtime.catalog.entries.names():  # each has read the folder by itself
            self.announce(task)
        met = False
        while True:
            self._news.clear()
            try:
                if not met:
                    await self._meet()
                    met = True
                await self._share()
            except NotReadyError:  # one that still starts is told once it is there, and so is one that hangs
                await asyncio.sleep(_LOOK)
                continue
            except Exception:
                logger.exception("the other processes cannot be told of changes; trying again")
            with suppress(TimeoutError):
                async with asyncio.timeout(_SOONEST):
                    await self._news.wait()

    async def _meet(self) -> None:
        """Announces what another process has and this one may not, as it read the folder at another time."""
        await self._require_ready()
        for answer in await self._peers.ask(NAMES):
            if not isinstance(answer, PeerMessage):
                raise NotReadyError("one of the processes cannot be asked", passing=True)
            for task in answer.head:
                self._followed.setdefault(task, None)
                self.announce(task)

    async def names(self, _: PeerMessage) -> PeerMessage:
        """The names of the tasks that this process has."""
        return PeerMessage(sorted(self._runtime.catalog.entries.names()))

    async def _share(self) -> None:
        for task in sorted(self._behind):
            async with self._turn:
                if (again := self._behind.get(task)) and time.monotonic() >= again.at:
                    await self._require_ready()
                    await self._tell(task)

    async def follow(self, asked: PeerMessage) -> PeerMessage:
        """Repeats a change that the first process tells of; the answer is empty, or says why it was not made here."""
        state = _State.parse(asked.head)
        try:
            await self._repeat(state, asked.body)
        except ServiceError as error:
            return PeerMessage(error.message)
        except Exception:
            logger.exception("a change of the task %s cannot be followed", state.task)
            return PeerMessage("an internal error; the log has it")
        return PeerMessage()

    @asynccontextmanager
    async def _own_turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._runtime.settings.deadline):
                await self._turn.acquire()
        except TimeoutError as error:
            raise NotReadyError("other changes are under way for too long", passing=True) from error
        try:
            yield
        finally:
            self._turn.release()

    def _state(self, task: str) -> _State:
        entry = self._runtime.catalog.entries.find(task)
        if entry is None:
            return _State(task)
        return _State(task, entry.snapshot(), entry.task is not None and self._runtime.folding.state(entry.task)[1])

    async def _tell(self, task: str) -> str | None:
        """Sends a task's state to the others, unless they have it; returns why one did not follow, None if all did."""
        state, again = self._state(task), self._behind.get(task, _NOW)
        reason = None
        # One that did not follow may have done so in part, or when nobody waited for it any more.
        if again.waited or state != self._followed.get(task, _State(task)):
            reason = await self._ask(state)
        if reason is not None:
            if not again.waited:
                logger.warning("the task %s: one of the processes did not follow: %s; trying again", task, reason)
            self._behind[task] = again.later()
            return reason
        self._behind.pop(task, None)
        self._followed[task] = state
        if state.entry is None:
            del self._followed[task]
        if self._state(task) != state:  # by now: whoever announced that did so before this was told
            self.announce(task)
        return None

    async def _ask(self, state: _State) -> str | None:
        content = self._runtime.catalog.entries.take_content(state.entry.digest if state.entry else None)
        try:
            answers = await self._peers.ask(CHANGE, PeerMessage(asdict(state), content), LATER)
        except TimeoutError as error:
            return str(error)
        reasons = (answer.value if isinstance(answer, Silence) else answer.head for answer in answers)
        return next((reason for reason in reasons if reason), None)

    async def _repeat(self, state: _State, content: bytes) -> None:
        runtime, name = self._runtime, state.task
        await runtime.administer(lambda: runtime.catalog.apply_snapshot(name, state.entry, content))
        entry = runtime.catalog.entries.find(name)
        if entry is not None and entry.task is not None and state.pinned != runtime.folding.state(entry.task)[1]:
            task, apply = entry.task, runtime.folding.pin if state.pinned else runtime.folding.unpin
            await runtime.fold(lambda: apply(task))
