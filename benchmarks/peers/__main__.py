"""Throughput, latency and memory of this service beside other ways to serve the same model, timed in turn.

python -m benchmarks.peers --python PEERS/bin/python --csv peers.csv

All decode, resize and compute alike, in as many single-threaded workers as there are cores; those with "processes" have
them in as many processes. Peers run the full model, with the adapter folded in. One whose package the interpreter lacks
is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.formats import cpu_format
from benchmarks.load import Load, ask, load
from benchmarks.peers.prepare import Prepared, prepare
from benchmarks.peers.rows import Row, tables, versions, write_csv
from benchmarks.peers.ways import PACKAGES, WAYS, Way, starts
from benchmarks.pictures import pictures
from benchmarks.rounds import in_turn
from benchmarks.servers import Server
from benchmarks.tasks import EMBEDDED, MODELS
from fpet.hardware.cores import cores


def main(arguments: argparse.Namespace) -> None:
    """Measures and prints tables."""
    installed = versions(arguments.python)
    rows = [row for count in arguments.tasks for row in _measure(arguments, count, installed)]
    print(tables(rows))
    if arguments.csv:
        write_csv(arguments.csv, rows)


def _measure(arguments: argparse.Namespace, tasks: int, installed: Mapping[str, str]) -> list[Row]:
    """The timings of all ways with so many tasks, of which each request takes one at random."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        prepared = prepare(Path(folder), arguments.model, tasks)
        servers: dict[str, Server] = {}
        for name, start in starts(prepared, arguments.python).items():
            needed = PACKAGES.get(name)
            if needed is not None and needed not in installed:
                print(f"{name} is left out: {arguments.python} has no package {needed}", file=sys.stderr)
                continue
            servers[name] = stack.enter_context(start())
            servers[name].pause()
        ways = {name: way for name, way in WAYS.items() if way.server in servers}
        for way in ways.values():
            asyncio.run(check(servers[way.server], way, prepared))
            _load(servers[way.server], way, prepared, arguments.concurrency, arguments.settle)
        row = partial(
            Row,
            model=arguments.model,
            tasks=tasks,
            concurrency=arguments.concurrency,
            cores=cores(),
            dtype=cpu_format(),
            versions=" ".join(f"{package} {version}" for package, version in installed.items()),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )
        timings = {
            name: _timing(servers[way.server], way, prepared, arguments, partial(row, way=name))
            for name, way in ways.items()
        }
        return list(itertools.chain(*in_turn(timings, arguments.rounds).values()))


def _timing(
    server: Server, way: Way, prepared: Prepared, arguments: argparse.Namespace, row: Callable[..., Row]
) -> Callable[[], Row]:
    """How to time a way once."""

    def run() -> Row:
        done, resident = _load(server, way, prepared, arguments.concurrency, arguments.seconds)
        p50, p99 = (done.percentile(share) for share in (0.5, 0.99))
        return row(images_per_second=done.rate, p50_seconds=p50, p99_seconds=p99, resident_bytes=resident)

    return run


def _load(server: Server, way: Way, prepared: Prepared, concurrency: int, seconds: float) -> tuple[Load, int]:
    """What comes of asking a server that is paused for so long, and the bytes that it holds at the end."""
    images = pictures()

    def request() -> bytes:
        return way.request(server.port, random.choice(prepared.tasks.names), random.choice(images))

    server.resume()
    done = asyncio.run(load(server.port, concurrency, seconds, request)).require_success()
    resident = server.memory()
    server.pause()
    return done, resident


async def check(server: Server, way: Way, prepared: Prepared) -> None:
    """Asks every task about an image; with more tasks than there are images, some about the same.

    Raises:
        RuntimeError: if the label is not the right one.
    """
    server.resume()
    names = prepared.tasks.names
    images = list(itertools.islice(itertools.cycle(pictures()), len(names)))
    for name, image, right in zip(names, images, prepared.right(images, reduced=way.reduced), strict=True):
        answer, body = await ask(server.port, way.request(server.port, name, image))
        if answer.status != 200 or way.label(body) not in right:
            raise RuntimeError(f"{way.server} answers {answer.status} {body!r} for {name}; right is {sorted(right)}")
    server.pause()


def parser() -> argparse.ArgumentParser:
    """The options."""
    root = argparse.ArgumentParser(
        prog="python -m benchmarks.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root.add_argument("--model", choices=MODELS, default=EMBEDDED, help="all but the embedded have random weights")
    root.add_argument("--tasks", type=int, nargs="+", default=[1, 16], help="how many are served (default: 1 16)")
    root.add_argument("--rounds", type=int, default=5, help="how often each is timed, in turn (default: %(default)s)")
    root.add_argument("--seconds", type=float, default=10, help="of each timing (default: %(default)s)")
    root.add_argument(
        "--settle", type=float, default=10, help="of load before, when hot tasks are folded (default: %(default)s)"
    )
    root.add_argument("--concurrency", type=int, default=32, help="requests in flight (default: %(default)s)")
    root.add_argument("--python", default=sys.executable, help="interpreter with the peers (default: this one)")
    root.add_argument("--csv", type=Path, help="file for all timings")
    return root


if __name__ == "__main__":
    main(parser().parse_args())
