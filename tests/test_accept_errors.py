"""A process without descriptors says so, not thousands of times a second."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import SECONDS, Files, Serving, serving, small_settings

SAID = "connections cannot be accepted: Too many open files; trying again"


@pytest.fixture
def service(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files)) as service:
        yield service


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """How many descriptors there may be, then as before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_that_no_connection_can_be_accepted_is_one_line(
    service: Serving, limits: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """What waits meanwhile is accepted later."""
    with socket.socket() as client:
        # It has the lowest that was free: all below are taken.
        resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno(), limits[1]))
        client.connect(service.address)
        client.sendall(b"GET /livez HTTP/1.1\r\nhost: here\r\n\r\n")
        give_up = time.monotonic() + SECONDS
        while not caplog.messages:
            assert time.monotonic() < give_up
        service.on_loop(lambda: None)  # comes after whatever is said at once
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert client.recv(12) == b"HTTP/1.1 200"
    assert caplog.messages == [SAID]


def test_an_event_loop_that_is_installed_beside_is_left_alone(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uvicorn would take it, and what the limits of connections rest on is asyncio's own."""
    (tmp_path / "uvloop.py").write_text("raise RuntimeError('it was taken')")
    monkeypatch.syspath_prepend(tmp_path)
    with serving(small_settings(small_files)) as service:
        assert service.client.get("/livez").status_code == 200


def test_anything_else_is_told_as_ever(service: Serving, caplog: pytest.LogCaptureFixture) -> None:
    service.on_loop(
        lambda: service.loop.call_exception_handler({"message": "unforeseen", "exception": OSError(5, "x")})
    )
    assert caplog.messages == ["unforeseen"]
