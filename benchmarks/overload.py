"""The service under many times the load that it can bear: who is refused, who waits, and what becomes of deadlines.

python -m benchmarks.overload

The client is a process of its own on the same machine, so what asking costs is taken from the service.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.formats import cpu_format, in_it
from benchmarks.load import Load, load, offer, percentile, post
from benchmarks.markdown import table
from benchmarks.pictures import pictures
from benchmarks.servers import Server, fpet_serve
from fpet.embedded import tasks_folder
from fpet.hardware.cores import cores
from service.settings import Settings

_MIB = 2**20
_CONCURRENCY = 8  # of the load that measures what the service can bear
_DEADLINE_FACTOR = 2.0  # times that are offered with deadlines
_WAITS = (0.1, 0.5, 1.0, 2.0)  # deadlines, in times that a full queue takes
_SHARES = (0.5, 0.99)


@dataclass(frozen=True)
class Measured:
    """What came of the phases.

    alone: one request after the other; before, after: the load that the service can bear; memory: resident bytes
    before the overload, and once a second during it; deadlines: by their seconds.
    """

    alone: Load
    before: Load
    overload: Load
    memory: Sequence[int]
    after: Load
    memory_after: int
    deadlines: dict[float, Load]


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints two tables."""
    gc.disable()  # it would walk all answers, for longer than a batch takes, and the service would seem to be late
    queue = str(arguments.max_queue)
    with fpet_serve(tasks_folder(), *in_it(), "--max-queue", queue, "--max-images", "1") as server:
        measured = asyncio.run(_measure(server, arguments))
    print(
        f"{arguments.factor:g} times what it can bear for {arguments.seconds:g} s, a queue of {queue} places, "
        f"{cores()} cores, {cpu_format()}, torch {torch.__version__}\n"
    )
    print(table(("", ""), overload_rows(measured, arguments.max_queue)))
    head = ("deadline, in times that a full queue takes", "200", "429", "504", "latest answer, in batches after it")
    print(table(head, deadline_rows(measured, arguments.max_queue)))


async def _measure(server: Server, arguments: argparse.Namespace) -> Measured:
    port, settle = server.port, arguments.settle
    path = f"/v1/tasks/{arguments.task}/classify?top_k=1"
    images = itertools.cycle(pictures())

    def request() -> bytes:
        return post(port, path, next(images))

    def within(seconds: float) -> Callable[[], bytes]:
        return lambda: post(port, path, next(images), x_deadline_ms=f"{1000 * seconds:.3f}")

    await load(port, _CONCURRENCY, settle, request)  # hot tasks are folded meanwhile
    alone = (await load(port, 1, settle, request)).require_success()
    before = (await load(port, _CONCURRENCY, settle, request)).require_success()
    memory: list[int] = []
    watching = asyncio.create_task(_watch(server, memory))
    overload = await offer(port, arguments.factor * before.rate, arguments.seconds, request)
    watching.cancel()
    after = (await load(port, _CONCURRENCY, settle, request)).require_success()
    memory_after = server.memory()
    deadlines = [share * arguments.max_queue / before.rate for share in _WAITS]
    rate = _DEADLINE_FACTOR * before.rate / len(deadlines)
    loads = await asyncio.gather(*(offer(port, rate, arguments.seconds, within(one)) for one in deadlines))
    return Measured(alone, before, overload, memory, after, memory_after, dict(zip(deadlines, loads, strict=True)))


async def _watch(server: Server, memory: list[int]) -> None:
    while True:
        memory.append(server.memory())
        await asyncio.sleep(1)


def overload_rows(measured: Measured, places: int) -> Iterator[tuple[str, str]]:
    """What there is to say of the overload, and of what came after it; places: in the queue."""
    alone, before, overload, after = measured.alone, measured.before, measured.overload, measured.after
    refused = [answer for answer in overload.answers if answer.status == 429]
    retry_after = [float(answer.headers["retry-after"]) for answer in refused] or [0.0]
    full_queue = places / before.rate
    yield "requests sent", f"{len(overload.answers):,}"
    for status, count in sorted(overload.statuses.items()):
        yield f"answered with {status}", f"{count / len(overload.answers):.1%}"
    yield "throughput of accepted requests, to that before", f"{overload.rate / before.rate:.3f}"
    for share in _SHARES:
        latency = overload.percentile(share)
        yield f"their p{100 * share:.0f}, to that of a request alone", f"{latency / alone.percentile(share):.2f}"
        yield f"their p{100 * share:.0f}, to the time that a full queue takes", f"{latency / full_queue:.2f}"
    for share in _SHARES:
        times = [answer.seconds for answer in refused] or [0.0]
        ratio = percentile(times, share) / alone.percentile(0.5)
        yield f"time until a 429, p{100 * share:.0f}, to the median of a request alone", f"{ratio:.2f}"
    yield (
        "Retry-After in s, least, median, most",
        " ".join(f"{value:g}" for value in (min(retry_after), median(retry_after), max(retry_after))),
    )
    first = measured.memory[0]
    yield "MiB resident, at the start", f"{first / _MIB:.1f}"
    yield "change at the most, during it", f"{(max(measured.memory) - first) / _MIB:+.1f}"
    yield "change after it", f"{(measured.memory_after - first) / _MIB:+.1f}"
    yield "throughput afterwards, to that before", f"{after.rate / before.rate:.3f}"
    for share in _SHARES:
        ratio = after.percentile(share) / before.percentile(share)
        yield f"p{100 * share:.0f} afterwards, to that before", f"{ratio:.2f}"


def deadline_rows(measured: Measured, places: int) -> Iterator[Sequence[str]]:
    """The shares of answers by deadline, and how long after it the last one came."""
    answers = [answer for done in measured.deadlines.values() for answer in done.answers]
    batch = median(float(answer.headers["x-inference-time"]) / 1000 for answer in answers if answer.status == 200)
    for deadline, done in measured.deadlines.items():
        latest = max(answer.seconds - deadline for answer in done.answers)
        shares = [f"{done.statuses[status] / len(done.answers):.1%}" for status in (200, 429, 504)]
        yield f"{deadline * measured.before.rate / places:g}", *shares, f"{latest / batch:+.2f}"


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root.add_argument("--task", default="fashion-mnist", help="embedded task to ask (default: %(default)s)")
    root.add_argument("--seconds", type=float, default=60, help="of overload, and of deadlines (default: %(default)s)")
    root.add_argument("--settle", type=float, default=10, help="of each load before and after (default: %(default)s)")
    root.add_argument("--factor", type=float, default=10, help="offered, in times it can bear (default: %(default)s)")
    root.add_argument(
        "--max-queue",
        type=int,
        default=Settings.model_fields["max_queue"].default,
        help="places in the service's queue (default: %(default)s)",
    )
    return root


if __name__ == "__main__":
    main(parser().parse_args())
