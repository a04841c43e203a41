"""What an answer may be, whatever was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

# Server errors that are due, each with the word that it must carry: a task that was taken out of service, a deadline of
# the client's own, a task folder that cannot be written.
_DUE = {503: "not_ready", 504: "deadline_exceeded", 507: "storage"}


@dataclass(frozen=True)
class Reply:
    """status: None if no answer came; seconds: until it was complete."""

    status: int | None
    headers: Mapping[str, str]
    body: bytes
    seconds: float


def wrong(reply: Reply, *, parsed: bool = True) -> str | None:
    """What is wrong with an answer; None if nothing. parsed: whether the request surely reached the application."""
    status = reply.status
    if status is None:
        return "no answer" if parsed else None
    words_of_the_server = not parsed and status == 400 and not _is_json(reply)
    return None if status < 400 or words_of_the_server else _wrong_error(status, reply.body)


def _wrong_error(status: int, body: bytes) -> str | None:
    try:
        error = json.loads(body)
    except ValueError:
        return f"status {status} without our JSON"
    if not isinstance(error, dict) or set(error) != {"error", "error_type"}:
        return f"status {status} with other JSON than ours"
    if status >= 500 and _DUE.get(status) != error["error_type"]:
        return f"status {status}, {error['error_type']}"
    return None


def _is_json(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").startswith("application/json")
