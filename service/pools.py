"""The thread pools of a service, one for each purpose."""

from __future__ import annotations

from service.ending import end_without
from service.hardware import share_of_cores
from service.model.parallelism import Parallelism
from service.settings import Settings
from service.worker_threads import BACKGROUND, COMPUTING, DECODING, torch_threads


class Pools:
    """forwards: run batches; decode: decodes images, in `decoders` threads; large: decodes large images, one after the
    other; text: reads and writes JSON, in one thread, as whoever does so holds the interpreter's lock; loader: changes
    the catalog; folding: folds tasks; explainer: computes explanations; calibrator: times forwards in the background.

    on_cpu: whether forwards compute on the CPU.
    """

    def __init__(self, settings: Settings, way: Parallelism, *, on_cpu: bool) -> None:
        # On a GPU the thread that gives it work must not wait for those that decode.
        self.forwards = torch_threads("forward", way.workers, way.threads, COMPUTING if on_cpu else 0)
        self.decoders = settings.decode_threads or share_of_cores(settings.processes)
        self.decode = torch_threads("decode", self.decoders, 1, DECODING)
        self.large = torch_threads("large", 1, 1)
        self.text = torch_threads("text", 1, 1, DECODING)
        self.loader, self.folding, self.explainer = (
            torch_threads(name, 1, way.threads) for name in ("loader", "folding", "explainer")
        )
        self.calibrator = torch_threads("calibrator", 1, way.threads, BACKGROUND)

    def end(self, until: float) -> None:
        """Ends the threads; if one still runs at that time of the monotonic clock, ends the process as failed."""
        others = self.loader, self.calibrator, self.explainer, self.folding, self.decode, self.large, self.text
        # First the forwards: a loader that is still at the tasks from the start waits for them.
        for pool in (self.forwards, *others):
            if left := pool.end(until):
                end_without(left)
