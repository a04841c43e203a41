"""When the client asks again, and how long it waits: by the rules alone."""

from __future__ import annotations

import math
import time
from email.utils import formatdate

import httpx
import numpy as np
import pytest
from peer import REFUSED

from fpet.client import DeadlineExceededError, OverloadedError, ServiceError, UnreachableError
from fpet.client.exchange import Call, Outcome, Send, Wait, ask
from fpet.client.retry import Patience, pause, retry_after
from fpet.client.session import Session

NOW = 1_000_000_000.0
REQUEST = httpx.Request("POST", "http://127.0.0.1:1/x")  # httpx's errors always have theirs


def answered(status: int, **headers: str) -> httpx.Response:
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    return httpx.Response(status, json=REFUSED, headers=headers)


def call(*, repeatable: bool = True) -> Call[int]:
    return Call("POST", "/x", lambda response: response.status_code, repeatable=repeatable)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0),
        ({"retry-after": formatdate(NOW + 3600, usegmt=True), "date": formatdate(NOW + 3595, usegmt=True)}, 5),
        ({"retry-after": formatdate(NOW + 5, usegmt=True), "date": "yesterday"}, 5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "٣"}, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_pauses_are_random_below_a_doubling_bound_and_never_shorter_than_asked_for() -> None:
    for attempt, longest in [(0, 0.25), (1, 0.5), (4, 4.0), (5, 8.0), (50, 8.0), (100_000, 8.0)]:
        pauses = [pause(attempt, None) for _ in range(200)]
        assert 0 <= min(pauses) < longest / 4
        assert longest * 3 / 4 < max(pauses) <= longest
        assert all(3 <= pause(attempt, 3) <= 3 + longest for _ in range(20))


REPEATED: list[tuple[Outcome, bool]] = [
    (answered(429, retry_after="1"), True),
    (answered(503, retry_after="1"), True),
    (httpx.ConnectError("refused", request=REQUEST), True),
]
REPEATED_IF_HARMLESS: list[tuple[Outcome, bool]] = [
    (httpx.ReadError("reset", request=REQUEST), False),
    (httpx.WriteError("reset", request=REQUEST), False),
    (httpx.RemoteProtocolError("disconnected", request=REQUEST), False),
]
NEVER_REPEATED: list[Outcome] = [
    *(answered(status, retry_after="1") for status in (307, 400, 401, 404, 409, 413, 422, 500, 502, 504, 507)),
    answered(429),
    answered(503),
    answered(503, retry_after="soon"),
    httpx.ReadTimeout("late", request=REQUEST),
]


@pytest.mark.parametrize("outcome", [outcome for outcome, _ in REPEATED + REPEATED_IF_HARMLESS], ids=repr)
def test_a_harmless_request_is_repeated(outcome: Outcome) -> None:
    conversation = ask(call(), Patience(60, retries=1), math.inf)
    assert isinstance(next(conversation), Send)
    assert isinstance(conversation.send(outcome), Wait)
    assert isinstance(conversation.send(None), Send)
    with pytest.raises(StopIteration) as end:
        conversation.send(answered(200))
    assert end.value.value == 200


@pytest.mark.parametrize(("outcome", "repeated"), REPEATED + REPEATED_IF_HARMLESS, ids=repr)
def test_a_change_is_repeated_only_if_it_was_certainly_not_made(outcome: Outcome, repeated: bool) -> None:
    conversation = ask(call(repeatable=False), Patience(60, retries=1), math.inf)
    next(conversation)
    if repeated:
        assert isinstance(conversation.send(outcome), Wait)
    else:
        with pytest.raises(UnreachableError) as error:
            conversation.send(outcome)
        assert error.value.received


@pytest.mark.parametrize("outcome", NEVER_REPEATED, ids=repr)
def test_what_asking_again_would_not_help_is_raised_at_once(outcome: Outcome) -> None:
    conversation = ask(call(), Patience(60, retries=9), math.inf)
    next(conversation)
    with pytest.raises(ServiceError):
        conversation.send(outcome)


def test_no_wait_goes_beyond_the_time_that_there_is() -> None:
    for patience, deadline in ((Patience(5, 9), math.inf), (Patience(60, 9), time.monotonic() + 5)):
        conversation = ask(call(), patience, deadline)
        next(conversation)
        with pytest.raises(OverloadedError) as error:
            conversation.send(answered(429, retry_after="6"))
        assert error.value.retry_after == 6


def test_moments_are_as_exact_as_the_clock_whatever_the_type_of_a_number() -> None:
    """Of a machine that runs for weeks, numpy's float32 tells moments apart by a tenth of a second, float16 none."""
    of_patience = ask(call(), Patience(np.float32(5), 9), math.inf)
    (of_options,) = Session("http://127.0.0.1:1")._classify([b"an image"], "digits", {"deadline": np.float16(5)})
    for conversation in (of_patience, of_options):
        step = next(conversation)
        assert isinstance(step, Send)
        assert type(step.expires) is float


def test_no_request_is_sent_after_the_deadline() -> None:
    with pytest.raises(DeadlineExceededError, match="no time is left"):
        next(ask(call(), Patience(60, 9), time.monotonic()))
