"""What a service says of itself, over all of its processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from prometheus_client.registry import Collector

from service.errors import NotReadyError
from service.processes.changes import CHANGE, Changes
from service.processes.siblings import Answer, Siblings
from service.processes.sums import Sums, pack
from service.runtime import Runtime, Status

_HEALTH, _METRICS = "health", "metrics"
_WORST_LAST: tuple[Status, ...] = ("ready", "starting", "draining", "failed")


@dataclass(frozen=True)
class Health:
    """status: whether requests are served; stuck: whether a batch is under way for so long that it may never end, as
    when a device no longer answers."""

    status: Status
    stuck: bool


class Whole:
    """A runtime, together with those of the other processes; changes: of its tasks, in all of them."""

    def __init__(self, runtime: Runtime, siblings: Siblings) -> None:
        self.runtime = runtime
        self._siblings = siblings
        self.changes = Changes(runtime, siblings)

    @asynccontextmanager
    async def answering(self, further: Mapping[str, Answer]) -> AsyncIterator[None]:
        """Answers the other processes, and what else they ask, until the end of the block."""
        own = {_HEALTH: self._own_health, _METRICS: self._own_metrics, CHANGE: self.changes.follow}
        async with self._siblings.answering({**own, **further}):
            yield

    async def health(self) -> Health:
        """The worst that one of the processes says; one that does not answer has failed, and is stuck."""
        try:
            others = [_health(told) for told in await self._siblings.ask(_HEALTH)]
        except TimeoutError:
            return Health("failed", stuck=True)
        every = [self._health(), *others]
        return Health(max((one.status for one in every), key=_WORST_LAST.index), any(one.stuck for one in every))

    async def require_ready(self) -> None:
        """Raises NotReadyError until all processes are warm: one that starts would miss a change."""
        self.runtime.require_ready()
        if not self._siblings.alone and (status := (await self.health()).status) in ("starting", "failed"):
            raise NotReadyError(f"one of the processes is {status}", passing=True)

    async def metrics(self) -> Collector:
        """The metrics of all processes that are there, as those of one.

        Raises:
            NotReadyError: if one of them does not answer.
        """
        try:
            told = await self._siblings.ask(_METRICS)
        except TimeoutError as error:
            raise NotReadyError("one of the processes does not answer", passing=True) from error
        own = self.runtime.metrics.registry
        return Sums(own, [one for one in told if one is not None]) if told else own

    def _health(self) -> Health:
        runtime = self.runtime
        return Health(runtime.status, stuck=runtime.batcher.longest > runtime.settings.stuck_seconds)

    async def _own_health(self, _: bytes) -> bytes:
        return json.dumps(asdict(self._health())).encode()

    async def _own_metrics(self, _: bytes) -> bytes:
        return await asyncio.to_thread(pack, self.runtime.metrics.registry)


def _health(told: bytes | None) -> Health:
    return Health("starting", stuck=False) if told is None else Health(**json.loads(told))
