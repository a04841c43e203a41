"""Two processes of one service, as far as the tests need: two services in threads, which ask each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from serving import Serving, serving

from service.processes.peers import Peers
from service.settings import Settings

Both = tuple[Serving, Serving]


@contextmanager
def two(settings: Settings, folder: Path) -> Iterator[Both]:
    """The first, which changes the tasks, and the other, which knows what the first has; folder: for their sockets."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(serving(settings, Peers(folder, number, 2))) for number in range(2))
        first.until(lambda: first.client.get("/readyz").status_code == 200 and first.metric("tasks_behind") == 0)
        yield first, second


def told(service: Serving, task: str) -> dict[str, object]:
    """What one tells of a task."""
    document: dict[str, object] = service.client.get(f"/v1/tasks/{task}").json()
    return document


def alike(both: Both, task: str) -> bool:
    """Whether both tell the same of a task."""
    return told(both[0], task) == told(both[1], task)


def seen(both: Both, task: str) -> dict[str, object]:
    """What is told of a task, which is the same whoever is asked."""
    assert told(both[0], task) == told(both[1], task)
    return told(both[0], task)
