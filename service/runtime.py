"""The running service: its parts, its start and end, and the way of images through it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Literal, TypeVar

from fpet.errors import TaskError
from service.batcher import Batcher
from service.calibration import doublings
from service.catalog import Catalog
from service.decode import Decoder
from service.engine import Engine
from service.errors import NotReadyError
from service.explanations import Explanations
from service.folded import own_bytes
from service.folding import Folding
from service.gauges import add_gauges
from service.hardware import share_of_cores
from service.inference import Inferences
from service.inputs import BodyReader
from service.loaded import LoadedTask, resident_bytes
from service.metrics import Metrics
from service.parallelism import BACKGROUND_NICENESS, NICENESS, Parallelism, candidates, choose, torch_threads
from service.sampler import Sampler
from service.settings import ALL, Settings
from service.statistics import Statistics
from service.watch import follow
from service.work import Group, Output, Work

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# Images in the forwards that are timed to choose how many run at once: a batch under some load, and quick to run.
_TRIAL_BATCH = 4

Status = Literal["starting", "ready", "draining", "failed"]


class Runtime:
    """What requests are served with; `status` says whether they are."""

    def __init__(self, settings: Settings, metrics: Metrics, engine: Engine, catalog: Catalog) -> None:
        self.settings = settings
        self.metrics = metrics
        self.engine = engine
        self.catalog = catalog
        self.statistics = Statistics(metrics)
        self.status: Status = "starting"
        self.warm = asyncio.Event()
        workers, threads = self._parallelism()
        # On a GPU the thread that gives it work must not wait for those that decode.
        self._forward_pool = torch_threads("forward", workers, threads, NICENESS if engine.device.type == "cpu" else 0)
        self._decode_pool = torch_threads("decode", settings.decode_threads or share_of_cores(settings.processes), 1)
        self._large = torch_threads("large", 1, 1)
        self._loader, self._folder, self._explainer = (
            torch_threads(name, 1, threads) for name in ("loader", "folder", "explainer")
        )
        self._calibrator = torch_threads("calibrator", 1, threads, BACKGROUND_NICENESS)
        self.folding = Folding(settings, metrics, engine, self._folder, catalog.serving, read=catalog.read)
        self._shadows = Sampler(settings.shadow_share)
        self.reader = BodyReader(settings.max_body, settings.max_images, self._decode_pool)
        decoder = Decoder(settings.formats, settings.max_pixels, self._decode_pool, self._large)
        self.explanations = Explanations(engine, decoder, self._explainer)
        self.batcher: Batcher[Group, Work, Output] = Batcher(
            self._run,
            self._forward_pool,
            kind=lambda work: work.task.header.name,
            workers=workers,
            max_batch=settings.max_batch,
            max_kinds=settings.max_batch_tasks,
            max_queue=settings.max_queue,
        )
        self.inferences = Inferences(self.batcher, decoder, self.folding.group, metrics, self.statistics)
        add_gauges(metrics.registry, settings, engine, catalog)
        metrics.queue_size.set_function(lambda: self.batcher.queued)
        metrics.longest_batch.set_function(lambda: self.batcher.longest)
        metrics.resident_bytes.labels("backbone").set(own_bytes(engine.backbone.vit))
        metrics.resident_bytes.labels("tasks").set_function(lambda: resident_bytes(catalog.serving()))
        metrics.resident_bytes.labels("unpacked").set_function(lambda: engine.unpacked.bytes)
        metrics.resident_bytes.labels("captured").set_function(lambda: engine.captures.bytes if engine.captures else 0)

    def _parallelism(self) -> Parallelism:
        """How many forwards at once and in how many threads each; on a GPU one, whose thread only gives it work."""
        settings, engine = self.settings, self.engine
        used = share_of_cores(settings.processes) if engine.device.type == "cpu" else 1
        ways = candidates(used, settings.workers, settings.threads)
        chosen, rates = choose(ways, lambda: engine.run_bare(min(settings.max_batch, _TRIAL_BATCH)))
        self.metrics.set_parallelism(chosen.workers, chosen.threads, {str(way): rate for way, rate in rates.items()})
        return chosen

    def _run(self, group: Group, works: Sequence[Work]) -> list[Output]:
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
            self._calibrator.submit(self._shadow, group, works)
        return outputs

    def _require_alive(self) -> None:
        """Ends the service if the backbone alone fails too, as after an error from which a GPU does not recover."""
        try:
            self.engine.run_bare(1)
        except Exception:
            logger.exception("the service cannot go on: the backbone fails")
            if self.status != "draining":
                self.status = "failed"

    def _shadow(self, group: Group, works: Sequence[Work]) -> None:
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
        loop = asyncio.get_running_loop()
        try:
            await self._preload()
            if not self.catalog.entries():
                logger.warning("there is no task in %s", self.catalog.folder)
            # In the threads that will serve, where several families are timed at once, as they will run beside others.
            families = self._families()
            logger.info("warming up; families of tasks: %d", len(families))
            timed = [loop.run_in_executor(self._forward_pool, self._calibrate, task) for task in families]
            await asyncio.gather(*timed)
        except Exception as error:
            foreseen = isinstance(error, TaskError)  # the log has said why
            logger.error("the service cannot start: %s", error, exc_info=not foreseen)
            self._started("failed")
            return
        logger.info("ready: %d tasks on %s in %s", len(self.catalog.serving()), self.engine.device, self.engine.dtype)
        self._started("ready")

    async def _preload(self) -> None:
        """Raises TaskError if a task that is named cannot serve, or none of those that are to be there can."""
        wanted = self.settings.preload
        names = [one.name for one in self.catalog.entries() if ALL in wanted or one.name in wanted]
        # In the threads of forwards, which have nothing else to do until the service is ready.
        entries = await _run_in(self._loader, lambda: self.catalog.load_all(names, self._forward_pool))
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
            before = set(self.catalog.serving())
            try:
                return change()
            finally:
                self.folding.retain()
                # Here, where no other change has taken a task out of service again that answered meanwhile. Only what
                # is new: what failed would be tried again with every look at the folder, and changes may come faster
                # than what is there already is looked at.
                for task in set(self.catalog.serving()) - before:
                    self._calibrator.submit(self._calibrate_beside, task)

        return await _run_in(self._loader, apply)

    async def fold(self, change: Callable[[], Result]) -> Result:
        """Calls what folds a task, or no longer, in the thread for that."""
        return await _run_in(self._folder, change)

    async def follow(self) -> None:
        """Follows the task folder until it is cancelled."""
        await self.warm.wait()
        await follow(self.catalog.folder, lambda: self.administer(self.catalog.scan))

    def _families(self) -> Collection[LoadedTask]:
        """One task of each family in service."""
        return {task.family.name: task for task in self.catalog.serving()}.values()

    def _calibrate(self, task: LoadedTask) -> None:
        mixed = self.settings.max_batch_tasks > 1
        for size in doublings(self.settings.max_batch):
            # A task may leave service before it is its turn: then it matters only to what it answered until then.
            wanted = task in self.catalog.serving() or task.family.timings.awaited
            if wanted and self.status != "draining":
                self.engine.calibrate(task, size, self.settings.calibration_repeats, mixed=mixed)

    def _calibrate_beside(self, task: LoadedTask) -> None:
        try:
            self._calibrate(task)
        except Exception:
            logger.exception("timing the task %s failed", task.header.name)

    async def close(self) -> None:
        """Answers what was admitted and ends the threads."""
        self.status = "draining"
        self.folding.close()
        await self.batcher.drain()
        # First that of the forwards: a loader that is still at the tasks from the start waits for them.
        for pool in (self._forward_pool, self._loader, self._calibrator, self._explainer, self._folder):
            pool.shutdown(cancel_futures=True)
        for pool in (self._decode_pool, self._large):
            pool.shutdown()


async def _run_in(pool: Executor, call: Callable[[], Result]) -> Result:
    """Calls in a thread of the pool, where the log still names the request."""
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)


@asynccontextmanager
async def running(settings: Settings, metrics: Metrics, engine: Engine, catalog: Catalog) -> AsyncIterator[Runtime]:
    """A runtime that warms up in the background while the service already says that it is alive."""
    runtime = Runtime(settings, metrics, engine, catalog)
    background = [asyncio.create_task(runtime.warm_up())]
    if settings.watch:
        background.append(asyncio.create_task(runtime.follow()))
    try:
        yield runtime
    finally:
        for task in background:
            task.cancel()
        await runtime.close()
