"""Parts of the OpenAPI description: bodies with images, headers of answers, and errors."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from typing import Any

from fastapi.routing import APIRoute
from pydantic import BaseModel

from service.errors import error_kinds
from service.forms import MULTIPART
from service.http.exchange import InferenceRoute
from service.http.failures import INTERNAL
from service.http.request_id import HEADER as REQUEST_ID
from service.inputs import BYTES, JSON
from service.schemas import EncodedImages, Error
from service.v2.binary import HEADER_LENGTH

# Of what needs the admin key, in the place of the examples that are about API keys.
_ADMIN_EXAMPLES = {
    401: "changing tasks needs the header 'Authorization: Bearer <admin key>'",
    403: "the admin key is wrong",
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

_OF_HEADS = (400, 431)  # see `service.http.limits`

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
    return {code: _error(code) for code in codes}


def admin_errors(*codes: int) -> Responses:
    """The same of what needs the admin key, which may be missing or wrong."""
    return {code: _error(code, example) for code, example in _ADMIN_EXAMPLES.items()} | errors(*codes)


def _error(code: int, example: str | None = None) -> dict[str, Any]:
    """The answer with that code; example: of its sentence, in the place of the one that its kind of error has."""
    kinds = [kind for kind in error_kinds() if kind.status == code]
    if kinds:
        description = " ".join((getdoc(kind) or "").partition("\n\n")[0] for kind in kinds)
        sentence, error_type = example or kinds[0].example, kinds[0].error_type
    else:
        description, sentence, error_type = "An id for the log and nothing else.", "internal error 5f1c...", INTERNAL
    return {
        "model": Error,
        "description": description,
        "content": {"application/json": {"example": {"error": sentence, "error_type": error_type}}},
        **with_headers(*_OF_ERRORS.get(code, ())),
    }


class Described(APIRoute):
    """A route whose description includes what holds for all: answers have the request's id, heads may be refused."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        own = options.get("status_code") or 200
        responses: Responses = {own: {}, **(options.get("responses") or {}), **errors(*_OF_HEADS)}
        options["responses"] = {code: {**with_headers(), **response} for code, response in responses.items()}
        super().__init__(path, endpoint, **options)


class DescribedInferenceRoute(InferenceRoute, Described):
    """A described route that asks tasks about images."""
