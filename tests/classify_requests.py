"""Requests to classify, by hand, and requests that reach no task at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pictures
from asgi import multipart

IMAGES = [pictures.png(seed) for seed in range(4)]
CLASSIFY = "/v1/tasks/digits/classify"
FORM = {"content-type": "multipart/form-data; boundary=frontier"}
# Method, path and status; whatever else such a request holds is not looked at.
MISDIRECTED = [
    ("POST", "/v1/tasks/nothing/classify", 404),
    ("POST", "/v1/tasks/..%2Fdigits/classify", 400),
    ("GET", "/v1/tasks/nothing", 404),
    ("POST", "/v2/models/nothing/infer", 404),
    ("POST", "/v1/classify?tasks=digits,nothing", 404),
    ("POST", "/v1/classify", 422),
    ("GET", "/nowhere", 404),
    ("POST", "/v1/nowhere", 404),
    ("POST", f"{CLASSIFY}/", 404),  # not sent elsewhere
    ("GET", CLASSIFY, 405),
]


def form(parts: Iterable[bytes]) -> dict[str, Any]:
    """The content and headers by which httpx sends a form of these parts."""
    return {"content": multipart(parts), "headers": FORM}
