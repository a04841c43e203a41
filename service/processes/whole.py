"""What a service says of itself, over all of its processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from prometheus_client.registry import Collector

from service.errors import NotReadyError
from service.processes.siblings import Siblings
from service.processes.sums import Sums, pack, unpack
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
    """A runtime, together with those of the other processes."""

    def __init__(self, runtime: Runtime, siblings: Siblings) -> None:
        self._runtime = runtime
        self._siblings = siblings

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Tells the other processes of this one, until the end of the block."""
        async with self._siblings.answering({_HEALTH: self._own_health, _METRICS: self._own_metrics}):
            yield

    async def health(self) -> Health:
        """The worst that one of the processes says; one that does not answer has failed, and is stuck."""
        try:
            others = [_health(told) for told in await self._siblings.ask(_HEALTH)]
        except TimeoutError:
            return Health("failed", stuck=True)
        every = [self._health(), *others]
        return Health(max((one.status for one in every), key=_WORST_LAST.index), any(one.stuck for one in every))

    async def metrics(self) -> Collector:
        """The metrics of all processes that are there, as those of one.

        Raises:
            NotReadyError: if one of them does not answer.
        """
        try:
            told = await self._siblings.ask(_METRICS)
        except TimeoutError as error:
            raise NotReadyError("one of the processes does not answer", passing=True) from error
        own = self._runtime.metrics.registry
        return Sums([own.collect(), *(unpack(one) for one in told if one is not None)]) if told else own

    def _health(self) -> Health:
        runtime = self._runtime
        return Health(runtime.status, stuck=runtime.batcher.longest > runtime.settings.stuck_seconds)

    async def _own_health(self) -> bytes:
        return json.dumps(asdict(self._health())).encode()

    async def _own_metrics(self) -> bytes:
        return await asyncio.to_thread(pack, self._runtime.metrics.registry)


def _health(told: bytes | None) -> Health:
    return Health("starting", stuck=False) if told is None else Health(**json.loads(told))
