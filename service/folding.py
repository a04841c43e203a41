"""Which tasks are served folded: the hot ones, as far as that is measured to be faster, and those that are pinned."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from fpet.backbone import Backbone, load_backbone
from fpet.errors import BackboneError, FpetError, TaskError, UnsupportedError
from fpet.hardware.allocator import return_freed_memory
from fpet.hardware.paired_timing import alternate
from fpet.task import Task
from fpet.vit import AdaptedViT
from service.engine import Engine
from service.errors import ConflictError, InvalidRequestError, ServiceError
from service.metrics import Metrics
from service.model.folded import Instance, make_instance
from service.model.folded_cache import FoldedCache
from service.model.heat import Heat
from service.model.loaded import Family, LoadedTask
from service.model.sizes import doublings
from service.model.work import BatchKey, Work
from service.settings import Settings

logger = logging.getLogger(__name__)

_REPEATS = 9
_GAIN = 0.02  # share of the time of forwards that an instance has to save
_LONGEST_TRIAL = 2.0  # seconds, in which the machine answers less
_MORE_ALONE = 1.5  # times the share of its batches that a task had when it was no faster folded: it is tried again


class Folding:
    """Makes instances off the path of requests, in the one thread of `pool`, and takes them out again.

    An instance belongs to what was loaded, not to a name: a task that is replaced loses its instance and its pin.

    serving: what is in service; read: a task file. An instance that does not save enough of the forward's time is
    dropped, and not tried again unless the task comes to have its batches more to itself.
    """

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        engine: Engine,
        pool: Executor,
        serving: Callable[[], Collection[LoadedTask]],
        *,
        read: Callable[[Path], bytes],
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._pool = pool
        self._serving = serving
        self._read = read
        self._cache: FoldedCache[LoadedTask] = FoldedCache(settings.folded_bytes, metrics.evictions.inc)
        self._heat: Heat[LoadedTask] = Heat(settings.folded_share)
        # The share of its batches that a task had when folding it was tried in vain; infinite if it never folds.
        self._in_vain: WeakKeyDictionary[LoadedTask, float] = WeakKeyDictionary()
        self._sizes: WeakKeyDictionary[Family, int] = WeakKeyDictionary()  # of an instance of a task of it, in bytes
        self._closed = False
        metrics.resident_bytes.labels("folded").set_function(lambda: self._cache.bytes)

    def group(self, task: LoadedTask, *, reduced: bool, dtype: torch.dtype = torch.uint8) -> BatchKey:
        """The key of the batches that an image of the task may be in, by what serves the task now; dtype: of pixels."""
        return BatchKey(task.family, reduced, self._cache.use(task), dtype)

    def state(self, task: LoadedTask) -> tuple[Instance | None, bool]:
        """The instance that serves a task, if one does, and whether it is pinned."""
        return self._cache.look(task)

    def count(self, group: BatchKey, works: Sequence[Work]) -> None:
        """Counts a batch towards the shares of its tasks; one that has become hot is folded soon, in the pool."""
        for task in self._heat.add(Counter(work.task for work in works), apart=group.folded is not None):
            if self._settings.folded_bytes and task.family.template.foldable and not self._closed:
                self._pool.submit(self._try, task)

    def require_foldable(self, task: LoadedTask) -> None:
        """Raises InvalidRequestError if its adapter does not fold."""
        if not task.family.template.foldable:
            raise InvalidRequestError(
                f"{task.header.name}: {task.header.adapter.kind} does not fold: {task.family.template.why_not_folded}"
            )

    def pin(self, task: LoadedTask) -> None:
        """Folds a task, whether it is faster or not, and keeps it so. To be called in the pool's thread.

        Raises:
            InvalidRequestError: if the adapter does not fold, or not into this backbone, or answers what is not finite.
            ConflictError: if it does not fit into the budget, or the task or a file is another by now.
        """
        if not self._cache.pin(task):
            try:
                instance = self._fold(task)
            except UnsupportedError as error:
                raise InvalidRequestError(f"{task.header.name}: {error}") from error
            except TaskError as error:
                raise InvalidRequestError(f"{task.header.name}: folded, its answers are not finite") from error
            if not self._put(task, instance, pinned=True):
                raise ConflictError(f"the task {task.header.name!r} is another by now")
            self._pool.submit(self._calibrate, task, instance, doublings(self._settings.max_batch))

    def unpin(self, task: LoadedTask) -> None:
        """Treats a task like any other: it stays folded if that is measured to be faster."""
        instance, pinned = self._cache.look(task)
        if instance is not None and pinned:
            self._cache.unpin(task)
            if not self._faster(task, instance):
                self._cache.discard(task)

    def retain(self) -> None:
        """Drops the instances of tasks that are no longer in service; to be called after every change of these."""
        self._cache.retain(self._serving())

    def close(self) -> None:
        """Folds and times nothing more, once what is in progress ends."""
        self._closed = True

    def _try(self, task: LoadedTask) -> None:
        if self._closed or task not in self._serving() or self._cache.look(task)[0] is not None:
            return
        own, beside = self._heat.batch(task)
        if own / (own + beside) < _MORE_ALONE * self._in_vain.get(task, 0.0):
            return
        size = self._sizes.get(task.family, 0)
        if not self._cache.fits(task, size, self._colder(task)):  # by now; it is tried again as long as it is hot
            return
        self._in_vain[task] = math.inf  # unless all of this works out
        try:
            instance = self._fold(task)
            if not self._faster(task, instance):
                self._in_vain[task] = own / (own + beside)
            elif self._put(task, instance, pinned=False):
                del self._in_vain[task]
                self._calibrate(task, instance, doublings(self._settings.max_batch))
        except ConflictError as error:
            del self._in_vain[task]
            logger.info("the task %s stays unfolded for now: %s", task.header.name, error)
        except (FpetError, ServiceError) as error:
            logger.warning("the task %s stays unfolded: %s", task.header.name, error)
        except Exception:
            logger.exception("folding the task %s failed", task.header.name)

    def _fold(self, task: LoadedTask) -> Instance:
        instance = make_instance(self._exact_model(task), self._engine.backbone.vit)
        self._sizes[task.family] = instance.bytes
        try:
            for reduced in (True, False):
                self._engine.check(BatchKey(task.family, reduced, instance), task)
            return self._engine.program_maker.added_to(instance, task.header.name)
        finally:
            return_freed_memory()  # of the exact weights

    def _exact_model(self, task: LoadedTask) -> AdaptedViT:
        """Raises ConflictError for files that are others by now, or cannot be read, which may pass."""
        try:
            file = Task.parse(self._read(task.path), task.path)
            if file.digest != task.digest:
                raise TaskError(f"{task.path}: the file is another one by now")
            return file.build(self._exact())
        except (TaskError, BackboneError) as error:
            logger.error("the task %s cannot be folded: %s", task.header.name, error)
            raise ConflictError(
                f"{task.header.name}: its file or the backbone's is another by now, or cannot be read"
            ) from error

    def _exact(self) -> Backbone:
        """The backbone in float32 on the CPU. It is read anew where other numbers serve: kept, it would take twice as
        much memory as they do, for what is seldom needed."""
        served, source = self._engine.backbone, self._engine.source
        if source is None:
            return served
        backbone = load_backbone(source)
        if backbone.fingerprint != served.fingerprint:
            raise BackboneError(f"{source}: the file is another one by now")
        return backbone

    def _faster(self, task: LoadedTask, instance: Instance) -> bool:
        """Whether batches such as the task is in take less time if its own images go through the instance.

        They may have images of other tasks, which then are a batch without it: one forward more.
        """
        own, beside = self._heat.batch(task)

        def seconds(folded: bool) -> float:
            if not folded:
                return self._engine.seconds(BatchKey(task.family, True), task, own + beside, several=beside > 0)
            apart = self._engine.seconds(BatchKey(task.family, True, instance), task, own)
            return apart + (
                self._engine.seconds(BatchKey(task.family, True), task, beside, several=True) if beside else 0
            )

        seconds(True), seconds(False)
        # The shortest of each: whatever else a machine in service does can only add to them.
        folded, mixed = map(min, alternate(_REPEATS, seconds, longest=_LONGEST_TRIAL))
        faster = folded <= (1 - _GAIN) * mixed
        logger.info(
            "the task %s: batches of %d of its images and %d of others take %.2f ms folded and %.2f ms unfolded: %s",
            task.header.name,
            own,
            beside,
            1000 * folded,
            1000 * mixed,
            "folded from now on" if faster else "unfolded as before",
        )
        return faster

    def _put(self, task: LoadedTask, instance: Instance, *, pinned: bool) -> bool:
        """Puts an instance into service, if its task still is there, which may change at any time."""
        if task not in self._serving():  # then no other has to make room for it
            return False
        if pinned:
            self._cache.add(task, instance, pinned=True)
        else:
            self._cache.add(task, instance, spare=self._colder(task))
        self.retain()
        return self._cache.look(task)[0] is instance

    def _colder(self, task: LoadedTask) -> Callable[[LoadedTask], bool]:
        """Whether another task makes room for this one: if it has half the share or less, so that two never
        alternate."""
        share = self._heat.share(task)
        return lambda other: 2 * self._heat.share(other) <= share

    def _calibrate(self, task: LoadedTask, instance: Instance, sizes: Sequence[int]) -> None:
        """Times the smallest batch; the others take turns with whatever else there is to do in the pool's thread."""
        if self._closed or self._cache.look(task)[0] is not instance:
            return
        try:
            self._engine.calibrate(task, sizes[0], self._settings.calibration_repeats, instance)
        except Exception:
            logger.exception("timing the folded task %s failed", task.header.name)
        if sizes[1:] and not self._closed:
            self._pool.submit(self._calibrate, task, instance, sizes[1:])
