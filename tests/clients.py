"""A client that goes on asking until nobody takes its requests any more."""

from __future__ import annotations

import http.client
from collections import Counter
from collections.abc import Callable

import pictures


def _nothing() -> None:
    pass


def ask_until_refused(port: int, path: str, answered: Callable[[], None] = _nothing) -> Counter[str]:
    """Asks on one connection after the other, each as long as the service keeps it; returns the statuses that it saw,
    and how often its connection was closed (`closing`)."""
    seen: Counter[str] = Counter()
    while True:
        connection, asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60), 0
        closing = False
        try:
            while not closing:
                connection.request("POST", path, pictures.png(), {"content-type": "image/png"})
                answer = connection.getresponse()
                answer.read()
                closing = answer.getheader("connection") == "close"
                seen[str(answer.status)] += 1
                seen["closing"] += closing
                asked += 1
                answered()
        except (ConnectionError, http.client.RemoteDisconnected):
            # A connection that nobody had taken up yet when the service closed its door.
            assert asked == 0
            return seen
        finally:
            connection.close()
