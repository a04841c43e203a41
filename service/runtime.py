"""The running service: its parts, its start and its end."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Literal, TypeVar

from fpet.errors import TaskError
from fpet.words import count
from service.batcher import Batcher
from service.catalog import Catalog
from service.decode import Decoder
from service.ending import THREADS_SECONDS
from service.engine import Engine
from service.errors import NotReadyError
from service.explanations import Explanations
from service.fair_threads import FairThreads
from service.family_timer import FamilyTimer
from service.folding import Folding
from service.gauges import add_gauges
from service.hardware import share_of_cores
from service.inference import Inferences
from service.inputs import BodyReader
from service.metrics import Metrics
from service.model.parallelism import Parallelism, candidates, choose
from service.model.work import BatchKey, Output, Work
from service.pools import Pools
from service.sampler import Sampler
from service.settings import ALL, Settings
from service.statistics import Statistics

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

# Images in the forwards that are timed to choose how many run at once: a batch under some load, and quick to run.
_TRIAL_BATCH = 4

# Images for each thread that decodes. With fewer it waits at times for the event loop to give it the next; with more a
# task's image waits for longer behind those of others.
_AHEAD = 4

Status = Literal["starting", "ready", "draining", "failed"]


class Runtime:
    """The parts with which requests are served; `status` says whether they are."""

    def __init__(self, settings: Settings, metrics: Metrics, engine: Engine, catalog: Catalog) -> None:
        self.settings = settings
        self.metrics = metrics
        self.engine = engine
        self.catalog = catalog
        self.statistics = Statistics(metrics)
        self.status: Status = "starting"
        self.warm = asyncio.Event()
        self._end = math.inf
        way = self._parallelism()
        self.pools = pools = Pools(settings, way, on_cpu=engine.device.type == "cpu")
        self.folding = Folding(settings, metrics, engine, pools.folding, catalog.entries.serving, read=catalog.read)
        self._shadows = Sampler(settings.shadow_share)
        self._timer = FamilyTimer(settings, engine, catalog.entries)
        self.texts = FairThreads(pools.text, 1)
        self.reader = BodyReader(settings.max_body, settings.max_images, self.texts)
        threads, large = FairThreads(pools.decode, _AHEAD * pools.decoders), FairThreads(pools.large, 1)
        decoder = Decoder(settings.formats, settings.max_pixels, threads, large)
        self.explanations = Explanations(engine, decoder, pools.explainer)
        self.batcher: Batcher[BatchKey, Work, Output] = Batcher(
            self._run,
            pools.forwards,
            kind=lambda work: work.task.header.name,
            workers=way.workers,
            max_batch=settings.max_batch,
            max_kinds=settings.max_batch_tasks,
            max_queue=settings.max_queue,
        )
        self.inferences = Inferences(self.batcher, decoder, self.folding, metrics, self.statistics)
        add_gauges(metrics, settings, engine, catalog)
        metrics.queue_size.set_function(lambda: self.batcher.queued)
        metrics.queue_fill.set_function(lambda: self.batcher.queued / settings.max_queue)
        metrics.longest_batch.set_function(lambda: self.batcher.longest)

    def _parallelism(self) -> Parallelism:
        """How many forwards at once and in how many threads each; on a GPU one, whose thread only launches kernels."""
        settings, engine = self.settings, self.engine
        used = share_of_cores(settings.processes) if engine.device.type == "cpu" else 1
        ways = candidates(used, settings.workers, settings.threads)
        chosen, rates = choose(ways, lambda: engine.run_bare(min(settings.max_batch, _TRIAL_BATCH)))
        self.metrics.set_parallelism(chosen.workers, chosen.threads, {str(way): rate for way, rate in rates.items()})
        return chosen

    def _run(self, group: BatchKey, works: Sequence[Work]) -> list[Output]:
        try:
            outputs = self.engine.run(group, works)
        except Exception as error:
            # Its frames hold the tensors of the batch, in memory that may be what was missing: for the log their text.
            error.add_note("".join(traceback.format_tb(error.__traceback__)))
            error.__traceback__ = None
            self._require_alive()
            raise
        self.statistics.count_batch(work.task.header.name for work in works)
        self.folding.count(group, works)
        if group.reduced and group.family.reduces and self._shadows.due():
            self.pools.calibrator.submit(self._shadow, group, works)
        return outputs

    def _require_alive(self) -> None:
        """Ends the service if the backbone alone fails too, as after an error from which a GPU does not recover."""
        try:
            self.engine.run_bare(1)
        except Exception:
            logger.exception("the service cannot go on: the backbone fails")
            if self.status != "draining":
                self.status = "failed"

    def _shadow(self, group: BatchKey, works: Sequence[Work]) -> None:
        try:
            self.engine.shadow(group, works)
        except Exception:
            logger.exception("a shadow failed")
        finally:
            self._shadows.done()

    def require_ready(self) -> None:
        """Raises NotReadyError until the service is warm; while it drains after that, what still arrives is served."""
        if not self.warm.is_set():
            raise NotReadyError(f"the service is {self.status}")

    async def warm_up(self) -> None:
        """Loads the tasks that are to be there from the start and times the forwards; then the service is ready."""
        try:
            await self._preload()
            if not self.catalog.entries.serving():
                self._tell_that_none_serves()
            # In the threads that will serve, where several families are timed at once, as they will run beside others.
            if not await self._timer.time_all(self.pools.forwards):
                await _run_in(self.pools.forwards, self._require_alive)
                if self.status == "failed":
                    return
        except Exception as error:
            foreseen = isinstance(error, TaskError)  # the log has said why
            logger.error("the service cannot start: %s", error, exc_info=not foreseen)
            self._started("failed")
            return
        serving, engine = self.catalog.entries.serving(), self.engine
        failed = sum(entry.state == "failed" for entry in self.catalog.entries.all())
        others = f", {failed} failed," if failed else ""
        logger.info("ready: %s%s on %s in %s", count(len(serving), "task"), others, engine.device, engine.dtype)
        self._started("ready")

    def _tell_that_none_serves(self) -> None:
        there, admin = bool(self.catalog.entries.all()), self.settings.admin_key is not None
        lacking = "no task of %s is loaded%s" if there else "there is no task in %s%s"
        waits = "" if admin else "; until one is, /readyz says 503"
        # Tasks that an administrator is to load are out of service on purpose.
        logger.log(logging.INFO if there and admin else logging.WARNING, lacking, self.catalog.folder, waits)

    async def _preload(self) -> None:
        """Raises TaskError if a task that is named cannot serve, or none of those that are to be there can."""
        wanted = self.settings.preload
        names = [one.name for one in self.catalog.entries.all() if ALL in wanted or one.name in wanted]
        # In the threads of forwards, which have nothing else to do until the service is ready.
        entries = await _run_in(self.pools.loader, lambda: self.catalog.load_all(names, self.pools.forwards))
        self.catalog.entries.take_new()  # they are timed before the service is ready
        failed = [entry.name for entry in entries if entry.state == "failed"]
        if failed and (ALL not in wanted or failed == names):
            raise TaskError(f"tasks that are to be there cannot serve: {', '.join(failed)}")

    def _started(self, status: Status) -> None:
        """Ends the start, unless the service was told to stop meanwhile."""
        if self.status == "starting":
            self.status = status
            if status == "ready":
                self.warm.set()

    async def administer(self, change: Callable[[], Result]) -> Result:
        """Calls what changes the catalog in the loader's thread, one change after the other, off the path of requests.

        Tasks that are new are timed afterwards, if none of their family was, beside whatever else the machine does.
        """

        def apply() -> Result:
            try:
                return change()
            finally:
                self.folding.retain()
                # Here, where no other change has taken a task out of service again that answered meanwhile. Only what
                # is new: what failed would be tried again with every look at the folder, and changes may come faster
                # than what is there already is looked at.
                for task in self.catalog.entries.take_new():
                    self.pools.calibrator.submit(self._timer.time, task)

        return await _run_in(self.pools.loader, apply)

    async def fold(self, change: Callable[[], Result]) -> Result:
        """Calls what pins or unpins a task in the thread that folds."""
        return await _run_in(self.pools.folding, change)

    def stop(self) -> None:
        """Begins the shutdown: the service is no longer ready, and the time for what it has accepted starts to run."""
        self.status = "draining"
        self._timer.end()
        self._end = min(self._end, time.monotonic() + self.settings.shutdown_delay + self.settings.drain_seconds)

    @property
    def seconds_left(self) -> float:
        """Seconds of the shutdown that are left for what was accepted; infinite before it begins."""
        return max(0.0, self._end - time.monotonic())

    async def close(self) -> None:
        """Answers what was admitted and ends the threads. If one of them does not end, ends the process with the exit
        code 1."""
        self.stop()
        self.folding.close()
        await self.batcher.drain()
        self.pools.end(self._end + THREADS_SECONDS)


async def _run_in(pool: Executor, call: Callable[[], Result]) -> Result:
    """Calls in a thread of the pool, where the log still names the request."""
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)


@asynccontextmanager
async def running(settings: Settings, metrics: Metrics, engine: Engine, catalog: Catalog) -> AsyncIterator[Runtime]:
    """A runtime that warms up in the background while the service already says that it is alive."""
    runtime = Runtime(settings, metrics, engine, catalog)
    starting = asyncio.create_task(runtime.warm_up())
    try:
        yield runtime
    finally:
        starting.cancel()
        await runtime.close()
