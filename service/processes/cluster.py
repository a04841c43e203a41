"""Health, metrics and task changes of a service over all of its processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial

from prometheus_client.registry import Collector

from service.errors import NotReadyError
from service.exposition import Exposition
from service.processes.changes import CHANGE, NAMES, Changes
from service.processes.messages import PeerMessage
from service.processes.peers import AT_ONCE, Answer, Peers, Silence
from service.processes.sums import Sums, pack
from service.runtime import Runtime, Status
from service.shared_call import SharedCall
from service.tasks.watch import follow

_HEALTH, _METRICS, _DRAINED = "health", "metrics", "drained"
_WORST_LAST: tuple[Status, ...] = ("ready", "starting", "draining", "failed")


@dataclass(frozen=True)
class Health:
    """status: whether requests are served; stuck: whether a batch has run for so long that it may never end, as when a
    device no longer answers."""

    status: Status
    stuck: bool

    @property
    def ready(self) -> bool:
        """Whether it is to be sent requests."""
        return self.status == "ready" and not self.stuck


class Cluster:
    """The runtime of this process together with those of the others.

    changes: of tasks, in all of them; exposition: the metrics of all of them as text.
    """

    def __init__(self, runtime: Runtime, peers: Peers) -> None:
        self.runtime = runtime
        self._peers = peers
        self._drained = asyncio.Event()
        self._shared_health = SharedCall(self._ask_health)
        self.exposition = Exposition(self.metrics)
        self._lacks_tasks = runtime.settings.admin_key is None  # by which the first could still be put
        self.changes = Changes(runtime, peers, self.require_ready)
        runtime.metrics.ready.set_function(lambda: self._health().ready)
        runtime.metrics.tasks_behind.set_function(lambda: self.changes.behind)

    @asynccontextmanager
    async def answering(self, further: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers the other processes until the end of the block, and then, as long as there is time, until their own
        requests are answered, for which they may need this process. further: answers by the words of further requests.
        """
        own = {
            _HEALTH: self._own_health,
            _METRICS: self._own_metrics,
            _DRAINED: self._own_end,
            CHANGE: self.changes.follow,
            NAMES: self.changes.names,
        }
        async with self._peers.answering({**own, **further}):
            yield
            self._drained.set()
            if not self._peers.alone:
                with suppress(TimeoutError):
                    await self._peers.ask(_DRAINED, seconds=self.runtime.seconds_left)

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Until the end of the block, the first process follows the task folder, if the settings say so, and replicates
        changes to the others. If each followed by itself, generations would differ by what each happened to see."""
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
        """The worst health among the processes. One that does not answer in time has failed and is stuck; one that
        cannot be asked has failed, but is not known to be stuck. Concurrent calls share one round of questions."""
        return await self._shared_health()

    async def _ask_health(self) -> Health:
        try:
            others = [self._health_of(answer) for answer in await self._peers.ask(_HEALTH, seconds=AT_ONCE)]
        except TimeoutError:
            return Health("failed", stuck=True)
        every = [self._health(), *others]
        return Health(max((one.status for one in every), key=_WORST_LAST.index), any(one.stuck for one in every))

    def _health_of(self, answer: PeerMessage | Silence) -> Health:
        if isinstance(answer, PeerMessage):
            return Health(**answer.head)
        if answer is Silence.STARTING:
            return Health("starting", stuck=False)
        # They end together: this one does too, or nobody ends what goes on without the other.
        if self.runtime.status == "draining":
            return Health("draining", stuck=False)
        return Health("failed", stuck=answer is not Silence.UNASKED)

    async def require_ready(self) -> None:
        """Raises NotReadyError until all processes are warm, since one that is starting would miss a change."""
        self.runtime.require_ready()
        if not self._peers.alone and (status := (await self.health()).status) in ("starting", "failed"):
            raise NotReadyError(f"one of the processes is {status}", passing=True)

    async def metrics(self) -> Collector:
        """The metrics of all processes, as those of one; while the service starts, of the processes that are there.

        Raises:
            NotReadyError: if one of them does not answer, cannot be asked or has ended. Without it the sums would
                decrease, which Prometheus takes for a restart, after which it would count everything again.
        """
        try:
            answers = await self._peers.ask(_METRICS)
        except TimeoutError as error:
            raise NotReadyError(str(error)) from error
        if Silence.ENDED in answers or Silence.LOST in answers:
            raise NotReadyError("one of the processes has ended")
        if Silence.UNASKED in answers:
            raise NotReadyError("one of the processes cannot be asked")
        own = self.runtime.metrics.registry
        if self._peers.alone:
            return own
        return Sums(own, [one.body for one in answers if isinstance(one, PeerMessage)], self._peers.started)

    async def _follow(self) -> None:
        await self.runtime.warm.wait()
        self._note_tasks()
        await follow(self.runtime.catalog.folder, self._look)

    async def _look(self) -> None:
        """Reads what is new in the folder, one file at a time, so that other changes can be made in between."""
        catalog = self.runtime.catalog
        for name in await self.runtime.administer(catalog.due):
            await self.runtime.administer(partial(catalog.reload_if_due, name))
            self._note_tasks()
            if not self._peers.alone:
                self.changes.announce(name)

    def _note_tasks(self) -> None:
        self._lacks_tasks = self._lacks_tasks and not self.runtime.catalog.entries.serving()

    def _health(self) -> Health:
        """A service that has had no task yet, and that cannot be sent one, still starts: new instances on an empty
        volume must not take the place of those that can answer."""
        runtime = self.runtime
        self._note_tasks()
        status = "starting" if self._lacks_tasks and runtime.status == "ready" else runtime.status
        return Health(status, stuck=runtime.batcher.longest > runtime.settings.stuck_seconds)

    async def _own_health(self, _: PeerMessage) -> PeerMessage:
        return PeerMessage(asdict(self._health()))

    async def _own_metrics(self, _: PeerMessage) -> PeerMessage:
        return PeerMessage(body=await asyncio.to_thread(pack, self.runtime.metrics.registry))

    async def _own_end(self, _: PeerMessage) -> PeerMessage:
        """Answers once no request is left in this process; at once if it is not draining, as when the other fails."""
        if self.runtime.status == "draining":
            await self._drained.wait()
        return PeerMessage()
