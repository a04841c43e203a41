"""At which of a host's addresses the service listens, and what is said of those at which it cannot."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from serving import Files, small_settings

from fpet.cli import main
from service.app import create_app
from service.http.listening import bind
from service.http.server import Server

NOT_HERE = "192.0.2.1"  # RFC 5737: an address that no machine has

# A machine that has a name for an address that it has not, as containers without IPv6 have for that of IPv6.
_NAMED_BUT_MISSING = f"""
import socket
import sys
from fpet.cli import main
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda _, *rest, **more: [
    place for host in ("{NOT_HERE}", "127.0.0.1") for place in resolve(host, *rest, **more)
]
sys.exit(main(sys.argv[1:]))
"""


def test_an_address_that_a_name_has_and_the_machine_has_not_is_left_out(small_files: Files) -> None:
    command = [sys.executable, "-c", _NAMED_BUT_MISSING, "serve", "--host", "localhost", "--port", "0"]
    command += ["--backbone", str(small_files.backbone), "--tasks", str(small_files.tasks)]
    command += ["--dtype", "float32", "--threads", "1", "--max-batch", "1", "--calibration-repeats", "0"]
    command += ["--shutdown-delay", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if "running on" in line:
                address = line.split(" running on ")[1].split()[0].replace("localhost", "127.0.0.1")
            if "ready: 2 tasks" in line:
                break
        with urllib.request.urlopen(f"{address}/readyz", timeout=20) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == -signal.SIGTERM


def test_a_host_that_is_not_here_is_said_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", NOT_HERE, "--port", "0", "--backbone", "nowhere"]) == 2
    said = f"fpet: --host '{NOT_HERE}' and --port 0: Cannot assign requested address\n"
    assert capsys.readouterr().err == said


def test_a_free_port_is_one_at_all_addresses_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    hosts = ["127.0.0.1", "127.0.0.2"]
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda _, *rest, **more: [place for one in hosts for place in resolve(one, *rest, **more)],
    )
    with ExitStack() as stack:
        addresses = [stack.enter_context(one).getsockname() for one in bind("localhost", 0)]
    assert addresses[0][1] > 0
    assert addresses == [(host, addresses[0][1]) for host in hosts]


def test_an_address_that_a_name_has_twice_is_listened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two lines of /etc/hosts say the same; two sockets could be bound to it, and only one listen."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *place, **more: 2 * resolve(*place, **more))
    (one,) = bind("127.0.0.1", 0)
    one.close()


@contextmanager
def bound(port: int) -> Iterator[socket.socket]:
    """A socket that does not listen yet, and keeps nobody from the port who does not either."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", port))
        yield one


def test_who_finds_another_listening_at_the_last_moment_ends(
    small_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with bound(0) as own, bound(own.getsockname()[1]) as other:
        other.listen()
        server = Server(create_app(small_settings(small_files)), small_settings(small_files))
        with pytest.raises(SystemExit, match="1"):
            server.run([own])
    assert "the service cannot listen: Address already in use" in caplog.messages
    assert not any(record.exc_info for record in caplog.records)
