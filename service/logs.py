"""The log: lines to read, or JSON objects, one for every request and for what happens besides."""

from __future__ import annotations

import json
import logging
import re
import warnings
from datetime import UTC, datetime
from typing import Any

from service.http.exchange import Exchange
from service.http.request_id import current_id

_OWN = ("service", "fpet", "uvicorn")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_PLAIN = re.compile(r"[\w.:,/{}+-]+")

_requests = logging.getLogger("service.requests")


def configure(level: str, form: str) -> None:
    """Makes the process log to standard error; level, form: as in `Settings`.

    Other packages never log below `info`: some would write parts of images.
    """
    own = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=max(own, logging.INFO), handlers=[handler], force=True)
    logging.captureWarnings(True)
    # What Pillow finds odd in an image it says in the image's own numbers; Python keeps each such text for ever.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    for name in _OWN:
        logging.getLogger(name).setLevel(own)
    logging.getLogger("uvicorn.error").addFilter(_is_of_service)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it counts changes; the catalog says what came of them
    logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)  # it repeats headers that are malformed


def _is_of_service(record: logging.LogRecord) -> bool:
    """Not what Uvicorn says of bytes that are no HTTP, without a client: `service.http.protocol` says more of them."""
    return record.msg != "Invalid HTTP request received."


def log_exchange(exchange: Exchange) -> None:
    """One line a request; health and metrics, which are asked for every few seconds, are for debugging."""
    level = logging.DEBUG if exchange.probes else logging.INFO
    if _requests.isEnabledFor(level):
        message = f"{exchange.method} {exchange.route or '-'} {exchange.status}"
        _requests.log(level, message, extra={"fields": _fields(exchange)})


class JsonFormatter(logging.Formatter):
    """An object a line: time, level, logger, message, request_id, the fields of a request, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return json.dumps(_entry(self, record))


class TextFormatter(logging.Formatter):
    """Time, level, logger and message; then the fields as name=value, and an exception on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines."""
        entry = _entry(self, record)
        head = f"{entry.pop('time')} {entry.pop('level').upper()} {entry.pop('logger')}: {entry.pop('message')}"
        exception = entry.pop("exception", "").splitlines()
        pairs = [f"{name}={_text(value)}" for name, value in entry.items() if value not in (None, [])]
        lines = [" ".join([head, *pairs]), *exception]
        return "\n".join(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", line) for line in lines)


def _entry(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, Any]:
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    entry: dict[str, Any] = {
        "time": at.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    if (request_id := current_id()) is not None:
        entry["request_id"] = request_id
    entry |= getattr(record, "fields", {})
    if record.exc_info:
        entry["exception"] = formatter.formatException(record.exc_info)
    return entry


def _fields(exchange: Exchange) -> dict[str, Any]:
    """Bytes are those of bodies, tokens those of all images; stages are the longest among the tasks."""
    fields: dict[str, Any] = {
        "method": exchange.method,
        "route": exchange.route,
        "status": exchange.status,
        "error_type": exchange.error_type,
        "client": exchange.client,
        "tasks": list(exchange.tasks),
        "bytes_in": exchange.received,
        "bytes_out": exchange.sent,
        "total_ms": round(1000 * exchange.seconds, 3),
    }
    if exchange.inferred:
        fields["images"] = exchange.inferred[0].images
        for name in ("tokens_in", "tokens_out"):
            fields[name] = sum(getattr(one, name) for one in exchange.inferred)
        for stage in ("decode", "queue", "inference"):
            fields[f"{stage}_ms"] = round(1000 * max(getattr(one, stage) for one in exchange.inferred), 3)
    if exchange.trace_id is not None:
        fields["trace_id"] = exchange.trace_id
    return fields


def _text(value: object) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
