"""A program that is interrupted while its requests are under way does not wait for their answers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

SECONDS = 30
PROGRAM = """
import signal, sys
from fpet.client import Client
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
with Client(sys.argv[1], timeout=600, batch=1, concurrency=2) as client:
    client.classify([b"one", b"two", b"three"], "digits")
"""


def test_it_ends_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SECONDS)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, url], stderr=subprocess.PIPE, text=True)
        with program:
            try:
                held = [listening.accept()[0] for _ in range(2)]
                program.send_signal(signal.SIGINT)
                _, said = program.communicate(timeout=SECONDS)
            finally:
                program.kill()
        for connection in held:
            connection.close()
    assert said.rstrip().endswith("KeyboardInterrupt")
