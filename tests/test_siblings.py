"""What a process says of a service whose other process is not there, ends, says nothing, or is not well."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import Files, Serving, serving, small_settings

from service.processes.siblings import Siblings

HEALTHS = ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("siblings")


@pytest.fixture(scope="module")
def first(small_files: Files, folder: Path) -> Iterator[Serving]:
    with serving(small_settings(small_files), Siblings(folder, 0, 2)) as service:
        yield service


@contextmanager
def second(folder: Path, answer: bytes | None) -> Iterator[None]:
    """The other process, as far as it is heard: it sends that and hangs up, or None and does not."""
    held = []

    def answering(door: socket.socket) -> None:
        while True:
            try:
                connection, _ = door.accept()
            except OSError:
                return
            held.append(connection)
            connection.recv(100)
            if answer is not None:
                connection.sendall(answer)
                connection.close()

    path = folder / "1"
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()
        thread = threading.Thread(target=answering, args=(door,))
        thread.start()
        try:
            yield
        finally:
            door.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()
            path.unlink()


def statuses(service: Serving) -> list[int]:
    return [service.client.get(path).status_code for path in HEALTHS]


def test_one_that_is_not_there_yet_is_starting(first: Serving) -> None:
    assert statuses(first) == [200, 503, 200, 503]
    assert first.client.get("/readyz").json() == {"status": "starting"}
    assert first.metric("processes") == 1


def test_one_that_has_ended_left_its_socket(first: Serving, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(folder / "1"))
    assert first.client.get("/readyz").json() == {"status": "starting"}
    assert first.metric("processes") == 1
    (folder / "1").unlink()


def test_one_that_ends_while_it_is_asked_says_nothing(first: Serving, folder: Path) -> None:
    with second(folder, b""):
        assert statuses(first) == [200, 503, 200, 503]
        assert first.metric("processes") == 1


def test_one_that_does_not_answer_is_stuck(first: Serving, folder: Path) -> None:
    with second(folder, None):
        assert first.client.get("/livez").json() == {"status": "stuck"}
        assert first.client.get("/readyz").json() == {"status": "failed"}
        for path in ("/metrics", "/v1/savings", "/v2/models/stats"):
            answer = first.client.get(path)
            assert answer.status_code == 503
            assert answer.json() == {"error": "one of the processes does not answer", "error_type": "not_ready"}
            assert "retry-after" in answer.headers


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{"status": "ready", "stuck": false}', [200, 200, 200, 200]),
        ('{"status": "ready", "stuck": true}', [503, 200, 503, 200]),
        ('{"status": "starting", "stuck": false}', [200, 503, 200, 503]),
        ('{"status": "draining", "stuck": false}', [200, 503, 200, 503]),
        ('{"status": "failed", "stuck": false}', [200, 503, 200, 503]),
    ],
)
def test_what_one_says_holds_for_all(first: Serving, folder: Path, told: str, expected: list[int]) -> None:
    with second(folder, told.encode()):
        assert statuses(first) == expected


def test_two_tell_each_other(first: Serving, folder: Path, small_files: Files) -> None:
    with serving(small_settings(small_files), Siblings(folder, 1, 2)) as other:
        assert statuses(first) == statuses(other) == [200, 200, 200, 200]
        assert first.metric("processes") == other.metric("processes") == 2
        assert first.metric("queue_limit") == 2 * other.runtime.settings.max_queue
    assert statuses(first) == [200, 503, 200, 503]
