"""The three ways to send images, and every way to get them wrong."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgi import incoming, multipart, request
from busy import taken
from starlette.requests import Request

from service.deadline import Deadline
from service.errors import (
    BadRequestError,
    ClientGoneError,
    DeadlineExceededError,
    InvalidRequestError,
    ServiceError,
    SlowRequestError,
    TooLargeError,
    UnsupportedTypeError,
)
from service.fair_threads import FairThreads
from service.inputs import BodyReader

pytestmark = pytest.mark.anyio

FORM = "multipart/form-data; boundary=frontier"
MAX_BODY = 2**19
MAX_IMAGES = 3
IMAGES = [b"one", bytes(range(256)), b"--frontier\r\r\n\r\n--frontie"]


def encoded(*images: bytes) -> bytes:
    return json.dumps({"images": [base64.b64encode(image).decode() for image in images]}).encode()


@pytest.fixture
def reader() -> Iterator[BodyReader]:
    with ThreadPoolExecutor(1) as pool:
        yield BodyReader(MAX_BODY, MAX_IMAGES, FairThreads(pool, 1))


async def read(reader: BodyReader, incoming: Request) -> list[bytes]:
    return await reader.read(incoming, Deadline.after(20), "digits")


def in_chunks(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


LARGE = [bytes(2**18), b"x"]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(encoded(*IMAGES), "application/json"), (multipart(LARGE), FORM)],
    ids=["JSON", "a large form"],
)
async def test_tasks_take_turns_with_what_is_parsed(reader: BodyReader, body: bytes, content_type: str) -> None:
    done: list[str] = []

    async def ask(name: str) -> None:
        await reader.read(request([body], content_type), Deadline.after(20), name[0])
        done.append(name)

    with taken(reader.texts.pool):
        asked = [asyncio.create_task(ask(name)) for name in ("a1", "a2", "a3", "a4", "b1")]
        for _ in range(100):  # until all of them wait
            await asyncio.sleep(0)
    await asyncio.gather(*asked)
    assert done == ["a1", "a2", "b1", "a3", "a4"]


@pytest.mark.parametrize("content_type", ["image/png", "image/x-unheard-of", "application/octet-stream", "IMAGE/JPEG"])
async def test_a_raw_body_is_one_image(reader: BodyReader, content_type: str) -> None:
    assert await read(reader, request([b"ab", b"c"], content_type)) == [b"abc"]


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_a_form_has_an_image_a_part(reader: BodyReader, size: int) -> None:
    assert await read(reader, request(in_chunks(multipart(IMAGES), size), FORM)) == IMAGES


async def test_json_has_base64_or_data_uris(reader: BodyReader) -> None:
    assert await read(reader, request([encoded(*IMAGES)], "application/json; charset=utf-8")) == IMAGES
    text = base64.encodebytes(IMAGES[1]).decode()
    body = json.dumps({"images": [f"data:image/png;base64,{text}", text]}).encode()
    assert await read(reader, request([body], "application/json")) == [IMAGES[1], IMAGES[1]]


@pytest.mark.parametrize(
    ("body", "content_type", "error", "message"),
    [
        (b"", "image/png", BadRequestError, "the body is empty"),
        (b"", "application/json", BadRequestError, "the body is empty"),
        (b"", FORM, BadRequestError, "the body is empty"),
        (multipart(IMAGES)[:-20], FORM, BadRequestError, "ends before its last boundary"),
        (multipart(IMAGES), "multipart/form-data", BadRequestError, "multipart/form-data names no boundary"),
        (b"x", f"image/png{';' * 250}", UnsupportedTypeError, "the content type has 259 characters"),
        (multipart([b"x"] * 4), FORM, TooLargeError, "more than 3 images"),
        (encoded(*[b"x"] * 4), "application/json", TooLargeError, "more than 3 images"),
        (b"x" * (MAX_BODY + 1), "image/png", TooLargeError, "longer than the limit of 524288 bytes"),
        (b"{", "application/json", InvalidRequestError, "Invalid JSON"),
        (b"\xff", "application/json", InvalidRequestError, "Invalid JSON"),
        (b"[]", "application/json", InvalidRequestError, "Input should be an object"),
        (b"{}", "application/json", InvalidRequestError, "images: Field required"),
        (b'{"images": []}', "application/json", InvalidRequestError, "images: .* at least 1"),
        (b'{"images": [1]}', "application/json", InvalidRequestError, r"images\.0: .* string"),
        (b'{"images": ["eA=="], "url": "x"}', "application/json", InvalidRequestError, "url: there is no such field"),
        (b'{"images": ["eA==", "?"]}', "application/json", InvalidRequestError, r"images\.1: not base64"),
        (b'{"images": ["http://host/x.png"]}', "application/json", InvalidRequestError, "not fetched"),
        (b'{"images": ["data:image/png,x"]}', "application/json", InvalidRequestError, "data URI is not base64"),
        (b'{"images": ["\\u00e9"]}', "application/json", InvalidRequestError, r"images\.0: not base64"),
        (b"x", "text/plain", UnsupportedTypeError, "'text/plain' is not accepted; send image/"),
        (b"x", "application/x-www-form-urlencoded", UnsupportedTypeError, "is not accepted"),
        (b"x", None, UnsupportedTypeError, "without content type"),
    ],
)
async def test_what_is_wrong_is_said(
    reader: BodyReader, body: bytes, content_type: str | None, error: type[ServiceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await read(reader, request(in_chunks(body, 100_000), content_type))


async def test_a_compressed_body_is_refused_by_naming_how(reader: BodyReader) -> None:
    with pytest.raises(UnsupportedTypeError, match="content encoding 'gzip' is not accepted") as refused:
        await read(reader, request([gzip.compress(b"abc")], "image/png", content_encoding=" GZip"))
    assert refused.value.headers == {"accept-encoding": "identity"}
    assert await read(reader, request([b"abc"], "image/png", content_encoding="identity")) == [b"abc"]


async def test_a_body_that_announces_too_much_is_not_read(reader: BodyReader) -> None:
    with pytest.raises(TooLargeError):
        await read(reader, incoming([], "image/png", content_length=str(MAX_BODY + 1)))


async def test_nothing_is_read_beyond_the_limits(reader: BodyReader) -> None:
    endless = [{"type": "http.request", "body": bytes(MAX_BODY // 4), "more_body": True}] * 5
    for content_type in ("image/png", "application/json", FORM):
        with pytest.raises(TooLargeError):
            await read(reader, incoming(endless, content_type))


@pytest.mark.parametrize(("asked_for", "error"), [(False, SlowRequestError), (True, DeadlineExceededError)])
async def test_a_client_that_stops_sending_is_not_waited_for(
    reader: BodyReader, asked_for: bool, error: type[ServiceError]
) -> None:
    begun = incoming([{"type": "http.request", "body": b"x", "more_body": True}], "image/png")
    with pytest.raises(error, match=r"the body did not arrive within 0\.01 seconds"):
        await reader.read(begun, Deadline.after(0.01, asked_for=asked_for), "digits")


async def test_a_body_that_arrived_is_not_said_to_be_missing_when_its_parsing_has_to_wait(reader: BodyReader) -> None:
    late = r"no answer was ready within 0\.1 seconds"
    with taken(reader.texts.pool), pytest.raises(DeadlineExceededError, match=late):
        await reader.read(request([encoded(b"x")], "application/json"), Deadline.after(0.1), "digits")


async def test_a_client_that_leaves_while_its_body_waits_to_be_parsed_is_gone(reader: BodyReader) -> None:
    events = [{"type": "http.request", "body": encoded(b"x"), "more_body": False}, {"type": "http.disconnect"}]
    with taken(reader.texts.pool), pytest.raises(ClientGoneError):
        await read(reader, incoming(events, "application/json"))


async def test_a_client_that_leaves_while_sending_is_gone(reader: BodyReader) -> None:
    events = [{"type": "http.request", "body": b"x", "more_body": True}, {"type": "http.disconnect"}]
    with pytest.raises(ClientGoneError):
        await read(reader, incoming(events, "image/png"))
