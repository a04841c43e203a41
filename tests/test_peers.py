"""What a process says of a service whose other process is not there, ends, says nothing, or is not well."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import ADMIN, KEY, SECONDS, Files, Serving, serving, small_settings

from service.processes.messages import PeerMessage
from service.processes.peers import AT_ONCE, Peers, Silence

PROBE_SECONDS = 2  # as long as those of kubernetes/ wait
HEALTHS = ("/livez", "/readyz", "/v2/health/live", "/v2/health/ready")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "peers"
    folder.mkdir()
    return folder


@pytest.fixture
def first(small_files: Files, folder: Path) -> Iterator[Serving]:
    with serving(small_settings(small_files), Peers(folder, 0, 2)) as service:
        yield service


@contextmanager
def other(folder: Path, answer: bytes | None, number: int = 1, *, ready: bool = False) -> Iterator[None]:
    """The other process, as far as it is heard: it sends that and hangs up, or None and does not. ready: it says so
    when it is asked for its health."""
    held = []

    def answering(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno == errno.EMFILE:  # a test has taken the descriptors away, and gives them back
                    continue
                return
            held.append(connection)
            says = HEALTHY if _asked(connection) == b"health\n" and ready else answer
            if says is not None:
                connection.sendall(says)
                connection.close()

    path = folder / str(number)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=answering, args=(listener,))
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()
            path.unlink()


def _asked(connection: socket.socket) -> bytes:
    """Reads what one is asked, the word and all that is said with it."""
    with connection.makefile("rb") as file:
        word = file.readline()
        file.read(sum(map(int, file.readline().split())))
        return word


def written(head: str) -> bytes:
    """As they write to each other."""
    return f"{len(head)} 0\n{head}".encode()


HEALTHY = written('{"status": "ready", "stuck": false}')


def statuses(service: Serving) -> list[int]:
    return [service.client.get(path).status_code for path in HEALTHS]


def untold(service: Serving) -> str:
    """Why no amounts are told, wherever they would be."""
    answers = [service.client.get(path) for path in ("/metrics", "/v1/savings", "/v2/models/stats")]
    assert {(answer.status_code, "retry-after" in answer.headers) for answer in answers} == {(503, True)}
    (document,) = {answer.text for answer in answers}
    told: dict[str, str] = json.loads(document)
    assert told["error_type"] == "not_ready"
    return told["error"]


def test_agreed_value_is_that_of_the_first_process(folder: Path) -> None:
    """Also for who asks while it is being chosen."""
    first, second = (Peers(folder, number, 2) for number in range(2))
    other_asks = threading.Event()

    def choose() -> str:
        assert other_asks.wait(SECONDS)
        return "first"

    def ask() -> str:
        other_asks.set()
        return second.agreed("word", lambda: "second")

    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(first.agreed, "word", choose), pool.submit(ask)]
        assert len({one.result() for one in told}) == 1
    assert first.agreed("word", lambda: "another") == told[0].result()


def test_one_that_is_not_there_yet_is_starting(first: Serving) -> None:
    assert statuses(first) == [200, 503, 200, 503]
    assert first.client.get("/readyz").json() == {"status": "starting"}
    assert first.metric("processes") == 1


def test_what_one_counted_that_has_ended_is_not_left_out(first: Serving, folder: Path) -> None:
    """It left its socket, by which it is known to have been there."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "1"))
    assert first.client.get("/livez").json() == {"status": "stuck"}
    assert first.client.get("/readyz").json() == {"status": "failed"}
    assert untold(first) == "one of the processes has ended"


def test_one_whose_socket_is_taken_away_was_there(first: Serving, folder: Path) -> None:
    with other(folder, HEALTHY):
        assert statuses(first) == [200, 200, 200, 200]
    assert statuses(first) == [503, 503, 503, 503]
    assert untold(first) == "one of the processes has ended"


def test_one_that_ends_while_it_is_asked_says_nothing(first: Serving, folder: Path) -> None:
    with other(folder, b""):
        assert statuses(first) == [503, 503, 503, 503]
        assert untold(first) == "one of the processes has ended"


def test_an_answer_that_is_cut_off_is_none(first: Serving, folder: Path) -> None:
    with other(folder, HEALTHY[:-1]):
        assert statuses(first) == [503, 503, 503, 503]


def test_one_that_takes_up_no_connection_does_not_answer(folder: Path) -> None:
    """Also when more wait for it than the system lets: then a connection is none, which only writing to it shows."""

    async def ask() -> list[object]:
        asked = (Peers(folder, 0, 2).ask("health", seconds=0.5) for _ in range(20))
        return list(await asyncio.gather(*asked, return_exceptions=True))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "1"))
        listener.listen(1)
        told = {str(error) for error in asyncio.run(ask())}
    assert told == {"one of the processes did not answer within 0.5 seconds"}


def test_one_that_does_not_answer_is_stuck(first: Serving, folder: Path) -> None:
    with other(folder, None):
        assert AT_ONCE < PROBE_SECONDS
        told = [first.client.get(path).json() for path in ("/livez", "/readyz")]
        assert told == [{"status": "stuck"}, {"status": "failed"}]
        assert untold(first) == "one of the processes did not answer within 3 seconds"


def test_one_that_cannot_be_asked_for_now_is_not_stuck(
    first: Serving, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """This process has no descriptor left: that is no error in what was asked of it, and says nothing of the other."""
    with other(folder, HEALTHY):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert statuses(first) == [200, 200, 200, 200]  # on a connection that stays
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # what is open stays so, and nothing else opens
            assert statuses(first) == [200, 503, 200, 503]
            assert untold(first) == "one of the processes cannot be asked"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert statuses(first) == [200, 200, 200, 200]
    assert not any("internal error" in message for message in caplog.messages)


def test_a_change_that_nobody_takes_may_be_asked_for_again(files: Files, tmp_path: Path) -> None:
    with serving(small_settings(files, admin_key=KEY), Peers(tmp_path, 1, 2)) as second:
        answer = second.client.post("/v1/tasks/digits/load", headers=ADMIN)
        assert (answer.status_code, answer.json()["error"]) == (503, "one of the processes is starting")
        assert "retry-after" in answer.headers


def test_a_change_that_may_have_been_made_is_not_to_be_asked_for_again(files: Files, tmp_path: Path) -> None:
    with (
        serving(small_settings(files, admin_key=KEY), Peers(tmp_path, 1, 2)) as second,
        other(tmp_path, b"", 0, ready=True),
    ):
        answer = second.client.post("/v1/tasks/digits/load", headers=ADMIN)
        assert answer.status_code == 503
        assert answer.json()["error"].endswith("ended before it had answered; the change may have been made")
        assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ('{"status": "ready", "stuck": false}', [200, 200, 200, 200]),
        ('{"status": "ready", "stuck": true}', [503, 503, 503, 503]),
        ('{"status": "starting", "stuck": false}', [200, 503, 200, 503]),
        ('{"status": "draining", "stuck": false}', [200, 503, 200, 503]),
        ('{"status": "failed", "stuck": false}', [200, 503, 200, 503]),
    ],
)
def test_health_is_the_worst_of_all_processes(first: Serving, folder: Path, told: str, expected: list[int]) -> None:
    with other(folder, written(told)):
        assert statuses(first) == expected


def test_two_processes_share_health_and_metrics(first: Serving, folder: Path, small_files: Files) -> None:
    with serving(small_settings(small_files), Peers(folder, 1, 2)) as second:
        assert statuses(first) == statuses(second) == [200, 200, 200, 200]
        assert first.metric("processes") == second.metric("processes") == 2
        assert first.metric("queue_limit") == 2 * second.runtime.settings.max_queue
    assert statuses(first) == [503, 503, 503, 503]
    assert untold(first) == "one of the processes has ended"


@pytest.mark.anyio
async def test_a_process_that_ends_while_asked_is_lost_without_an_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def wait(_: PeerMessage) -> PeerMessage:
        asked.set()
        await asyncio.Event().wait()
        return PeerMessage()

    async with Peers(folder, 0, 2).answering({"wait": wait}):
        asking = asyncio.create_task(Peers(folder, 1, 2).ask("wait"))
        await asked.wait()
    assert await asking == [Silence.LOST]
    assert caplog.text == ""
