"""What a service says of itself, over all of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial

from prometheus_client.registry import Collector

from service.errors import NotReadyError
from service.processes.changes import CHANGE, Changes
from service.processes.messages import Message
from service.processes.peers import AT_ONCE, Answer, Peers, Silence
from service.processes.sums import Sums, pack
from service.runtime import Runtime, Status
from service.tasks.watch import follow

_HEALTH, _METRICS, _DRAINED = "health", "metrics", "drained"
_WORST_LAST: tuple[Status, ...] = ("ready", "starting", "draining", "failed")


@dataclass(frozen=True)
class Health:
    """status: whether requests are served; stuck: whether a batch is under way for so long that it may never end, as
    when a device no longer answers."""

    status: Status
    stuck: bool


class Cluster:
    """A runtime, together with those of the other processes; changes: of its tasks, in all of them."""

    def __init__(self, runtime: Runtime, peers: Peers) -> None:
        self.runtime = runtime
        self._peers = peers
        self._drained = asyncio.Event()
        self._asking: asyncio.Task[Health] | None = None
        self.changes = Changes(runtime, peers, self.require_ready)
        runtime.metrics.tasks_behind.set_function(lambda: self.changes.behind)

    @asynccontextmanager
    async def answering(self, further: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers the other processes, and what else they ask, until the end of the block; and from then on until their
        requests are answered too, for which they may need this one, as long as there is time."""
        own = {
            _HEALTH: self._own_health,
            _METRICS: self._own_metrics,
            _DRAINED: self._own_end,
            CHANGE: self.changes.follow,
        }
        async with self._peers.answering({**own, **further}):
            yield
            self._drained.set()
            if not self._peers.alone:
                with suppress(TimeoutError):
                    await self._peers.ask(_DRAINED, seconds=self.runtime.seconds_left)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Until the end of the block the first process follows the task folder, if it is to be, and tells the others:
        each by itself they would number the generations by what they happened to see."""
        tasks = []
        if self.runtime.settings.watch and self._peers.first:
            tasks.append(asyncio.create_task(self._follow()))
        if not self._peers.alone and self._peers.first:
            tasks.append(asyncio.create_task(self.changes.share()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

    async def health(self) -> Health:
        """The worst that one of the processes says; one that does not answer has failed, and is stuck. Of one that
        cannot be asked it is not known that it is. Asked for by many at once, it is found out once."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_health())
        return await asyncio.shield(self._asking)

    async def _ask_health(self) -> Health:
        try:
            others = [self._told(told) for told in await self._peers.ask(_HEALTH, seconds=AT_ONCE)]
        except TimeoutError:
            return Health("failed", stuck=True)
        every = [self._health(), *others]
        return Health(max((one.status for one in every), key=_WORST_LAST.index), any(one.stuck for one in every))

    def _told(self, told: Message | Silence) -> Health:
        if isinstance(told, Message):
            return Health(**told.head)
        if told is Silence.STARTING:
            return Health("starting", stuck=False)
        # They end together: this one does too, or nobody ends what goes on without the other.
        if self.runtime.status == "draining":
            return Health("draining", stuck=False)
        return Health("failed", stuck=told is not Silence.UNASKED)

    async def require_ready(self) -> None:
        """Raises NotReadyError until all processes are warm: one that starts would miss a change."""
        self.runtime.require_ready()
        if not self._peers.alone and (status := (await self.health()).status) in ("starting", "failed"):
            raise NotReadyError(f"one of the processes is {status}", passing=True)

    async def metrics(self) -> Collector:
        """The metrics of all processes, as those of one; at the start of those that are there by then.

        Raises:
            NotReadyError: if one of them does not answer, cannot be asked or has ended: sums that go down would be
                taken for those of a service that began anew, and all that it counted before would be counted again.
        """
        try:
            told = await self._peers.ask(_METRICS)
        except TimeoutError as error:
            raise NotReadyError(str(error)) from error
        if Silence.ENDED in told or Silence.LOST in told:
            raise NotReadyError("one of the processes has ended")
        if Silence.UNASKED in told:
            raise NotReadyError("one of the processes cannot be asked")
        own = self.runtime.metrics.registry
        return Sums(own, [one.body for one in told if isinstance(one, Message)]) if told else own

    async def _follow(self) -> None:
        await self.runtime.warm.wait()
        await follow(self.runtime.catalog.folder, self._look)

    async def _look(self) -> None:
        """Reads what is new in the folder, one file after the other, so that other changes have their turn between."""
        catalog = self.runtime.catalog
        for name in await self.runtime.administer(catalog.due):
            await self.runtime.administer(partial(catalog.look, name))
            if not self._peers.alone:
                self.changes.announce(name)

    def _health(self) -> Health:
        runtime = self.runtime
        return Health(runtime.status, stuck=runtime.batcher.longest > runtime.settings.stuck_seconds)

    async def _own_health(self, _: Message) -> Message:
        return Message(asdict(self._health()))

    async def _own_metrics(self, _: Message) -> Message:
        return Message(body=await asyncio.to_thread(pack, self.runtime.metrics.registry))

    async def _own_end(self, _: Message) -> Message:
        """Answers once no request is left here; at once if this process goes on, as when the other ends by itself."""
        if self.runtime.status == "draining":
            await self._drained.wait()
        return Message()
