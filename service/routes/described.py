"""Parts of the OpenAPI description: bodies with images, headers of answers, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel

from service.http.exchange import InferenceRoute
from service.http.request_id import HEADER as REQUEST_ID
from service.inputs import BYTES, JSON, MULTIPART
from service.schemas import EncodedImages, Error
from service.v2.binary import HEADER_LENGTH

_ERRORS = {
    400: ("the body is empty, or an image undecodable, truncated or animated", "bad_image", "the image is empty"),
    401: ("no Bearer key", "unauthorized", "this needs the header 'Authorization: Bearer <API key>'"),
    403: ("a wrong key", "forbidden", "the API key is wrong"),
    404: ("unknown task", "unknown_task", "there is no task 'shoes'; GET /v1/tasks lists them"),
    408: ("the body did not arrive in time", "slow_request", "the body did not arrive within 30 seconds"),
    409: ("the task is another one by now", "conflict", "the task 'shoes' is at generation 3, digest 22a875..."),
    413: ("too many bytes, pixels or images", "too_large", "the body is longer than the limit of 33554432 bytes"),
    415: ("content type or image format that is not accepted", "unsupported_type", "content type 'text/plain' ..."),
    422: ("a parameter, field or task file is wrong", "invalid_request", "query.top_k: the task has 10 labels"),
    429: (
        "the queue is full, or the memory for bodies, or too much is under way; see Retry-After",
        "overloaded",
        "the queue has 256 places, 256 are taken and 1 are needed",
    ),
    431: ("too many headers or parameters", "head_too_large", "the request has 101 headers; the limit is 100"),
    500: ("an id for the log and nothing else", "internal_error", "internal error 5f1c..."),
    503: ("starting, draining, or the task is not loaded; see Retry-After", "not_ready", "the service is starting"),
    504: ("the deadline passed", "deadline_exceeded", "no answer was ready within 30 seconds"),
    507: (
        "the task folder cannot be written",
        "storage",
        "shoes.safetensors: cannot be written: ...",
    ),
}
_ADMIN_ERRORS = {
    401: ("no Bearer key", "unauthorized", "changing tasks needs the header 'Authorization: Bearer <admin key>'"),
    403: ("a wrong key, or no task can be changed", "forbidden", "the admin key is wrong"),
}

ETAG, DIGEST = "etag", "x-task-digest"
TIMES = ("x-queue-time", "x-inference-time", "x-total-time", "x-tokens-in", "x-tokens-out", DIGEST)
_HEADERS = {
    REQUEST_ID: ("string", "the request's id: the client's own if that is well-formed, or a new one"),
    ETAG: ("string", "digest of the task in double quotes, if one is in service"),
    DIGEST: ("string", "SHA-256 of the task file that answered"),
    "x-queue-time": ("number", "milliseconds from decoded to the start of the first forward"),
    "x-inference-time": ("number", "milliseconds from there to the end of the last forward"),
    "x-total-time": ("number", "milliseconds from the arrival of the request"),
    "x-tokens-in": ("integer", "tokens of an image at the first block"),
    "x-tokens-out": ("integer", "tokens of an image after the last block; where each image decides, the most"),
    HEADER_LENGTH: ("integer", "bytes of the JSON, if those of tensors follow it"),
    "accept-encoding": ("string", "content encodings that are accepted, if another was sent"),
    "retry-after": ("integer", "seconds after which to ask again, if that may help"),
    "www-authenticate": ("string", "how to send the key"),
}
_OF_ERRORS = {401: ["www-authenticate"], 415: ["accept-encoding"], 429: ["retry-after"], 503: ["retry-after"]}

# The content of a body that is neither text nor JSON.
_BYTES = {"type": "string", "format": "binary"}
BINARY: dict[str, Any] = {"schema": _BYTES}

Responses = dict[int | str, dict[str, Any]]


def content_of(model: type[BaseModel]) -> dict[str, Any]:
    """The content of a body that routes read themselves. References in its schema are inlined: they would be resolved
    in the whole description, which lacks what they name."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def whole(one: Any) -> Any:
        if isinstance(one, list):
            return [whole(item) for item in one]
        if not isinstance(one, dict):
            return one
        own = {name: whole(value) for name, value in one.items() if name != "$ref"}
        return {**whole(parts[one["$ref"].rpartition("/")[2]]), **own} if "$ref" in one else own

    return {"schema": whole(schema)}


# The body of what is asked about images.
IMAGES_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "one image as it is, several as parts of a form (whatever their names), or several in JSON",
        "content": {
            "image/*": BINARY,
            BYTES: BINARY,
            MULTIPART: {"schema": {"type": "object", "properties": {"image": {"type": "array", "items": _BYTES}}}},
            JSON: content_of(EncodedImages),
        },
    }
}


def with_headers(*names: str) -> dict[str, Any]:
    """The headers of an answer that has these beside the request's id, for the API's description."""
    declared = {name: _HEADERS[name] for name in (REQUEST_ID, *names)}
    return {
        "headers": {name: {"schema": {"type": kind}, "description": text} for name, (kind, text) in declared.items()}
    }


def errors(*codes: int) -> Responses:
    """The answers with these codes, for the API's description."""
    return {code: _error(code, *_ERRORS[code]) for code in codes}


def admin_errors(*codes: int) -> Responses:
    """The same of what needs the admin key, which may be missing or wrong."""
    return {code: _error(code, *words) for code, words in _ADMIN_ERRORS.items()} | errors(*codes)


def _error(code: int, description: str, error_type: str, sentence: str) -> dict[str, Any]:
    example = {"error": sentence, "error_type": error_type}
    return {
        "model": Error,
        "description": description,
        "content": {"application/json": {"example": example}},
        **with_headers(*_OF_ERRORS.get(code, ())),
    }


class Described(APIRoute):
    """A route whose description includes what holds for all: answers have the request's id, and 431 is possible."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        own = options.get("status_code") or 200
        responses: Responses = {own: {}, **(options.get("responses") or {}), **errors(431)}
        options["responses"] = {code: {**with_headers(), **response} for code, response in responses.items()}
        super().__init__(path, endpoint, **options)


class DescribedInferenceRoute(InferenceRoute, Described):
    """A described route that asks tasks about images."""
