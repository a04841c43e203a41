"""When it is asked to stop, the service first says so, then finishes what it has begun."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pictures
import pytest
from busy import busy
from serving import Files, serving, small_settings

from service.app import create_app
from service.http.server import Server


def test_readiness_ends_first_and_requests_are_finished(small_files: Files) -> None:
    image = pictures.png()
    with serving(small_settings(small_files, shutdown_delay=3)) as service:
        connection = http.client.HTTPConnection(*service.address)
        connection.putrequest("POST", "/v1/tasks/digits/classify")
        connection.putheader("content-type", "image/png")
        connection.putheader("content-length", str(len(image)))
        connection.endheaders(image[:10])
        service.server.should_exit = True  # what SIGTERM sets
        service.until(lambda: service.client.get("/readyz").status_code == 503)
        assert service.classify(image).status_code == 200
        connection.send(image[10:])
        assert connection.getresponse().status == 200
        connection.close()


def test_a_request_that_takes_too_long_to_finish_is_told_so(
    small_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(small_settings(small_files, drain_seconds=1, decode_threads=1)) as service:
        with ThreadPoolExecutor(1) as client, busy(service):
            asking = client.submit(service.classify, pictures.png())
            service.until(lambda: service.metric("queue_size") == 1)
            service.server.should_exit = True  # what SIGTERM sets
            answer = asking.result()
        assert (answer.status_code, answer.json()["error_type"]) == (503, "not_ready")
        assert answer.headers["connection"] == "close"
    assert "Traceback" not in caplog.text  # it was foreseen


def test_who_has_not_sent_all_of_it_by_then_is_told_so_too(small_files: Files) -> None:
    with serving(small_settings(small_files, drain_seconds=1)) as service:
        connection = http.client.HTTPConnection(*service.address, timeout=20)
        connection.putrequest("POST", "/v1/tasks/digits/classify")
        connection.putheader("content-type", "image/png")
        connection.putheader("content-length", "1000")
        connection.endheaders(b"x")
        service.until(lambda: service.metric("queue_size") == 1)
        service.server.should_exit = True
        answer = connection.getresponse()
        assert (answer.status, b"not_ready" in answer.read()) == (503, True)
        connection.close()


def test_who_asks_twice_to_stop_is_not_made_to_wait(small_files: Files, caplog: pytest.LogCaptureFixture) -> None:
    with serving(small_settings(small_files)) as service:
        connection = http.client.HTTPConnection(*service.address, timeout=20)  # less than there is to drain
        connection.putrequest("POST", "/v1/tasks/digits/classify")
        connection.putheader("content-type", "image/png")
        connection.putheader("content-length", "1000")
        connection.endheaders(b"x")
        service.until(lambda: service.metric("queue_size") == 1)
        for _ in range(2):
            service.server.handle_exit(signal.SIGINT, None)
        answer = connection.getresponse()
        assert (answer.status, b"not_ready" in answer.read()) == (503, True)
        connection.close()
    assert "Traceback" not in caplog.text


def test_an_idle_connection_is_kept_for_as_long_as_the_settings_say(small_files: Files) -> None:
    with serving(small_settings(small_files, keep_alive_seconds=1)) as service:
        connection = http.client.HTTPConnection(*service.address, timeout=20)  # less than by default
        connection.request("GET", "/livez")
        assert connection.getresponse().read()
        assert connection.sock.recv(1) == b""
        connection.close()


@pytest.fixture
def signals() -> Iterator[None]:
    """What signals do here afterwards is what they did before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_terminal_that_closes_stops_it_unless_that_is_ignored(small_files: Files) -> None:
    settings = small_settings(small_files)
    for before, stops in ((lambda *_: None, True), (signal.SIG_IGN, False)):
        signal.signal(signal.SIGHUP, before)
        server = Server(create_app(settings), settings)
        with server.capture_signals():
            signal.raise_signal(signal.SIGHUP)
        assert server.should_exit == stops
        assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.usefixtures("signals")
def test_it_ends_as_by_the_first_signal_alone(small_files: Files) -> None:
    settings, raised = small_settings(small_files), []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: raised.append(number))
    with Server(create_app(settings), settings).capture_signals():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
            signal.raise_signal(number)
    assert raised == [signal.SIGTERM]
