"""Reports what a task did for a request: in its log line and trace, in its answer, and in headers."""

from __future__ import annotations

import time

from fastapi import Request

from service.http.exchange import Exchange, Inferred
from service.inference import Inference
from service.model.loaded import LoadedTask
from service.schemas import Timings, TokenCounts


def note(request: Request, task: LoadedTask, inference: Inference) -> None:
    """Adds what a task has just done to the exchange, for the log and the trace of the request."""
    images = len(inference.outputs)
    Exchange.of(request).inferred.append(
        Inferred(
            task=task.header.name,
            images=images,
            tokens_in=images * task.tokens_in,
            tokens_out=sum(output.tokens for output in inference.outputs),
            decode=inference.decode,
            queue=inference.queue,
            inference=inference.inference,
            at=time.time(),
        )
    )


def timings(inference: Inference, total: float) -> Timings:
    """Where the time of a request went; total: seconds from its arrival."""
    seconds = {"decode": inference.decode, "queue": inference.queue, "inference": inference.inference, "total": total}
    return Timings(**{stage: round(1000 * value, 3) for stage, value in seconds.items()})


def timing_headers(digest: str, tokens: TokenCounts, timings: Timings) -> dict[str, str]:
    """The headers of an answer that a task gave."""
    return {
        "x-queue-time": str(timings.queue),
        "x-inference-time": str(timings.inference),
        "x-total-time": str(timings.total),
        "x-tokens-in": str(tokens.into),
        "x-tokens-out": str(tokens.out),
        "x-task-digest": digest,
    }
