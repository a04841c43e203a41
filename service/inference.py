"""The way of images through the service, whichever protocol they came by: admitted, decoded, batched, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor

from service.batcher import Batcher, Done
from service.deadline import Deadline
from service.decode import Decoder
from service.errors import InvalidRequestError, OverloadedError
from service.folding import Folding
from service.metrics import Metrics
from service.model.loaded import LoadedTask
from service.model.work import BatchKey, Output, Work
from service.queue_slots import Reservation
from service.statistics import Statistics


@dataclass(frozen=True)
class Inference:
    """One task's outputs, one an image, in their order; where the time went, in seconds."""

    outputs: list[Output]
    decode: float
    queue: float
    inference: float

    @property
    def tokens_out(self) -> int:
        """Tokens of an image after the last block: the largest number among the images."""
        return max(output.tokens for output in self.outputs)


class Inferences:
    """Inferences by tasks: admission to the queue, decoding, batching and statistics."""

    def __init__(
        self,
        batcher: Batcher[BatchKey, Work, Output],
        decoder: Decoder,
        folding: Folding,
        metrics: Metrics,
        statistics: Statistics,
    ) -> None:
        self._batcher = batcher
        self._decoder = decoder
        self._folding = folding
        self._metrics = metrics
        self._statistics = statistics

    @contextmanager
    def admitted(self, tasks: Sequence[LoadedTask]) -> Iterator[Reservation]:
        """Reserves a queue slot for an image for each of the tasks, before any has been read.

        Raises:
            OverloadedError: if too few are free; this counts as a failed request to each of the tasks.
        """
        with ExitStack() as stack:
            try:
                reservation = stack.enter_context(self._batcher.admit(len(tasks), [task.header.name for task in tasks]))
            except OverloadedError:
                with self._counted(tasks):  # as what fails inside
                    raise
            yield reservation

    async def images(
        self,
        reservation: Reservation,
        tasks: Sequence[LoadedTask],
        images: Sequence[bytes],
        *,
        reduced: bool,
        deadline: Deadline,
    ) -> list[Inference]:
        """Encoded images to outputs, by each of the tasks for which the reservation was given.

        Raises:
            OverloadedError: before anything is decoded, if there are too few queue slots for all of the images.
            BadImageError, TooLargeError, UnsupportedTypeError: if an image cannot be decoded.
            InvalidRequestError: if a logit is not finite.
            DeadlineExceededError: at the deadline.
            BatchError: if a batch of the images failed.
        """
        loop = asyncio.get_running_loop()
        with self._counted(tasks):
            self._batcher.top_up(reservation, len(tasks) * len(images))
            admitted = loop.time()
            async with deadline.limit():
                preprocessings = [task.header.preprocessing for task in tasks]
                pixels = await self._decoder.decode(images, preprocessings, tasks[0].header.name)
            decoded = loop.time() - admitted
            self._metrics.decode_seconds.observe(decoded)
            own = zip(tasks, zip(*pixels, strict=True), strict=True)
            return await self._forward(reservation, list(own), reduced=reduced, decode=decoded, deadline=deadline)

    async def pixels(
        self, reservation: Reservation, task: LoadedTask, pixels: Tensor, *, reduced: bool, deadline: Deadline
    ) -> Inference:
        """Pixels to outputs: [N, 3, H, W] of the size that the task asks for, uint8, or float32 normalised as it asks.

        Raises:
            OverloadedError: if there are too few queue slots for all of the images.
            InvalidRequestError: if a logit is not finite.
            DeadlineExceededError: at the deadline.
            BatchError: if a batch of the images failed.
        """
        with self._counted([task]):
            self._batcher.top_up(reservation, len(pixels))
            own = [(task, list(pixels))]
            (inference,) = await self._forward(reservation, own, reduced=reduced, decode=0.0, deadline=deadline)
            return inference

    def _counted(self, tasks: Sequence[LoadedTask]) -> AbstractContextManager[None]:
        return self._statistics.counted([task.header.name for task in tasks])

    async def _forward(
        self,
        reservation: Reservation,
        own: Sequence[tuple[LoadedTask, Sequence[Tensor]]],
        *,
        reduced: bool,
        decode: float,
        deadline: Deadline,
    ) -> list[Inference]:
        """Each task's own pixels, the same number for each, to its outputs; decode: seconds that it took."""
        works: list[tuple[BatchKey, Work]] = []
        for task, pixels in own:
            group = self._folding.group(task, reduced=reduced, dtype=pixels[0].dtype)
            works += ((group, Work(task, one)) for one in pixels)
        done = await self._batcher.submit(reservation, works, deadline)
        if not all(one.result.finite for one in done):
            raise InvalidRequestError("the input is out of the range that the model can compute with")
        self._metrics.queue_seconds.observe(min(one.started for one in done) - done[0].queued)
        images = len(works) // len(own)
        inferences = [_inference(done[i * images : (i + 1) * images], decode=decode) for i in range(len(own))]
        for (task, _), one in zip(own, inferences, strict=True):
            self._statistics.count_stages(
                task.header.name, images, decode=decode, queue=one.queue, inference=one.inference
            )
        return inferences


def _inference(done: Sequence[Done[Output]], *, decode: float) -> Inference:
    queued, started = done[0].queued, min(one.started for one in done)
    return Inference(
        outputs=[one.result for one in done],
        decode=decode,
        queue=started - queued,
        inference=max(one.finished for one in done) - started,
    )
