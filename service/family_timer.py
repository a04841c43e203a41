"""Times the forwards of families of tasks, at the start and when a task of a new one comes."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor

from service.engine import Engine
from service.model.loaded import LoadedTask
from service.model.sizes import doublings
from service.settings import Settings
from service.tasks.entries import Entries

logger = logging.getLogger(__name__)


class FamilyTimer:
    """Times one task of a family, since all of its tasks take the same time; entries: of the tasks in service."""

    def __init__(self, settings: Settings, engine: Engine, entries: Entries) -> None:
        self._settings = settings
        self._engine = engine
        self._entries = entries
        self._ended = False

    def end(self) -> None:
        """Times nothing more."""
        self._ended = True

    async def time_all(self, pool: Executor) -> bool:
        """Times each family in service, several at once if the pool has several threads. Returns whether all could be.

        Raises:
            Exception: that of the first, if none could be.
        """
        loop = asyncio.get_running_loop()
        tasks = {task.family.name: task for task in self._entries.serving()}.values()
        logger.info("warming up; families of tasks: %d", len(tasks))
        told = await asyncio.gather(*(loop.run_in_executor(pool, self.time, task) for task in tasks))
        errors = [error for error in told if error is not None]
        if errors and len(errors) == len(tasks):
            raise errors[0]
        return not errors

    def time(self, task: LoadedTask) -> Exception | None:
        """Times the task's family at all sizes of batches; an error is returned, and is in the log."""
        mixed = self._settings.max_batch_tasks > 1
        try:
            for size in doublings(self._settings.max_batch):
                # A task may leave service before it is its turn: then it matters only to what it answered until then.
                wanted = task in self._entries.serving() or task.family.timings.awaited
                if wanted and not self._ended:
                    self._engine.calibrate(task, size, self._settings.calibration_repeats, mixed=mixed)
        except Exception as error:
            logger.exception("timing the task %s failed", task.header.name)
            return error
        return None
