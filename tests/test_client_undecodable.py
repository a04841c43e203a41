"""An answer that cannot be decoded was one: the service has done what it was asked, and would do it again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from peer import Answer, peer

from fpet.client import Client, ServiceError

GARBLED = Answer(200, b"no archive", {"content-encoding": "gzip"})


@pytest.mark.parametrize(
    "ask",
    [
        Client.tasks,
        Client.ready,
        lambda client: client.classify(b"an image", "digits"),
        lambda client: client.put("digits", b"file"),
        lambda client: client.delete("digits"),
    ],
    ids=["tasks", "ready", "classify", "put", "delete"],
)
def test_an_undecodable_answer_is_an_error_and_is_not_retried(ask: Callable[[Client], object]) -> None:
    with peer([GARBLED] * 9) as there, Client(there.url) as client:
        with pytest.raises(ServiceError, match="the answer is not one of this service: ") as error:
            ask(client)
        assert type(error.value) is ServiceError
        assert len(there.received) == 1
