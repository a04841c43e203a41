"""The encoded images in a request's body: one as it is, several in a form, or several in JSON; read up to a limit."""

from __future__ import annotations

import base64
import string
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import pydantic
from starlette.requests import ClientDisconnect, Request

from service.deadline import Deadline, Limit
from service.errors import (
    BadRequestError,
    ClientGoneError,
    DeadlineExceededError,
    InvalidRequestError,
    SlowRequestError,
    TooLargeError,
    UnsupportedTypeError,
)
from service.fair_threads import FairThreads
from service.forms import MULTIPART, boundary_of, parse_form, too_many
from service.http.disconnect import unless_gone
from service.json_size import check_json_size
from service.schemas import EncodedImages

Model = TypeVar("Model", bound=pydantic.BaseModel)

JSON = "application/json"
BYTES = "application/octet-stream"
_AS_IT_IS = "identity"
_LITTLE = 2**18  # bytes of a form, which are searched in less time than it may have to wait for the thread
_LONGEST = 256  # characters of a content type; to parse one takes longer than in proportion to its length
_BLANKS = string.whitespace.encode()
ACCEPTED = f"image/*, {BYTES}, {MULTIPART} or {JSON}"


@dataclass(frozen=True)
class BodyReader:
    """Reads images from bodies of at most `max_body` bytes and `max_images` images; `texts` parse forms and JSON."""

    max_body: int
    max_images: int
    texts: FairThreads

    async def read(self, request: Request, deadline: Deadline, kind: Hashable) -> list[bytes]:
        """The encoded images of the request, at least one, in their order.

        kind: whose they are, such as a task's; bodies are parsed in rotation over kinds.

        Raises:
            UnsupportedTypeError, BadRequestError, InvalidRequestError, TooLargeError: by what was sent.
            SlowRequestError, ClientGoneError: if it did not arrive, or the client left before it was parsed.
            DeadlineExceededError: if it arrived and was not parsed in time, or did not by the client's own deadline.
        """
        encoding = request.headers.get("content-encoding", _AS_IT_IS).strip().lower()
        if encoding != _AS_IT_IS:
            message = f"content encoding {encoding[:20]!r} is not accepted; send images as they are"
            raise UnsupportedTypeError(message, {"accept-encoding": _AS_IT_IS})
        content_type = request.headers.get("content-type", "")
        if len(content_type) > _LONGEST:
            raise UnsupportedTypeError(f"the content type has {len(content_type)} characters; send {ACCEPTED}")
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type == MULTIPART:
            return await self._parsed(request, deadline, kind, parse_form, boundary_of(content_type), at_once=_LITTLE)
        if media_type == JSON:
            return await self._parsed(request, deadline, kind, parse_json)
        if media_type == BYTES or media_type.startswith("image/"):
            return [await read_body(request, deadline, self.max_body)]
        sent = f"content type {media_type!r}" if media_type else "a body without content type"
        raise UnsupportedTypeError(f"{sent} is not accepted; send {ACCEPTED}")

    async def _parsed(
        self,
        request: Request,
        deadline: Deadline,
        kind: Hashable,
        parse: Callable[..., list[bytes]],
        *how: object,
        at_once: int = 0,
    ) -> list[bytes]:
        """What `parse` makes of the body, in a thread unless it has at most `at_once` bytes."""
        body = await read_body(request, deadline, self.max_body)
        if len(body) <= at_once:
            return parse(body, *how, self.max_images)
        return await unless_gone(request, deadline.within(self.texts.call(kind, parse, body, *how, self.max_images)))


async def read_body(request: Request, deadline: Deadline, max_bytes: int, *, may_be_empty: bool = False) -> bytes:
    """The body as it is, of any content type.

    Raises:
        BadRequestError, TooLargeError: if it is empty or too long.
        SlowRequestError, ClientGoneError: if it did not arrive.
        DeadlineExceededError: if it did not by the client's own deadline.
    """
    async with _arriving(deadline):
        body = b"".join([chunk async for chunk in _chunks(request, max_bytes)])
    if not body and not may_be_empty:
        raise BadRequestError("the body is empty")
    return body


async def _chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body as it arrives; nothing is read once it is known to be too long."""
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal():
        _require_short(int(announced), max_bytes)
    length = 0
    try:
        async for chunk in request.stream():
            length += len(chunk)
            _require_short(length, max_bytes)
            yield chunk
    except ClientDisconnect as error:
        raise ClientGoneError("the client left before its request was complete") from error


def _require_short(length: int, max_bytes: int) -> None:
    if length > max_bytes:
        raise TooLargeError(f"the body is longer than the limit of {max_bytes} bytes")


def _arriving(deadline: Deadline) -> Limit:
    """The time limit for a body to arrive; its error says whether the client or the service set it."""
    kind = DeadlineExceededError if deadline.asked_for else SlowRequestError
    return deadline.limit(lambda: kind(f"the body did not arrive within {deadline.seconds:g} seconds"))


def parse_json(body: bytes, max_images: int) -> list[bytes]:
    """The images of an `EncodedImages` document.

    Raises:
        InvalidRequestError: if it is none, or a string is not base64.
        TooLargeError: if there are more than `max_images`, or it holds more than any such document.
    """
    check_json_size(body)
    texts = parse(EncodedImages, body).images
    if len(texts) > max_images:
        raise too_many(max_images)
    return [decode_base64(text, f"images.{i}") for i, text in enumerate(texts)]


def parse(schema: type[Model], body: bytes) -> Model:
    """JSON as a document of that schema.

    Raises:
        InvalidRequestError: naming the field that is wrong.
    """
    try:
        return schema.model_validate_json(body)
    except pydantic.ValidationError as error:
        raise InvalidRequestError.of(error.errors(include_input=False, include_url=False)[0]) from error


def decode_base64(text: str, where: str) -> bytes:
    """The bytes of base64, which may be inside a data URI and broken into lines.

    Raises:
        InvalidRequestError: naming `where` the text is no base64.
    """
    if text.startswith("data:"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            raise InvalidRequestError(f"{where}: the data URI is not base64")
    try:
        return base64.b64decode(text.encode("ascii").translate(None, _BLANKS), validate=True)
    except ValueError as error:  # binascii.Error, or characters beyond ASCII
        raise InvalidRequestError(f"{where}: not base64 (images are not fetched from addresses)") from error
