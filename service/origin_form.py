"""Targets that name the host, as those of requests to a proxy do (RFC 9112, section 3.2.2)."""

from __future__ import annotations

import re

import h11

_ABSOLUTE = re.compile(rb"https?://([^/?@]+)", re.IGNORECASE)


def in_origin_form(request: h11.Request) -> h11.Request:
    """The same request with path and query alone as its target; the host that was there is the header's instead."""
    absolute = _ABSOLUTE.match(request.target)
    if absolute is None:
        return request
    target = request.target[absolute.end() :]
    return h11.Request(
        method=request.method,
        target=target if target.startswith(b"/") else b"/" + target,
        headers=[(b"host", absolute[1]), *(header for header in request.headers if header[0] != b"host")],
        http_version=request.http_version,
    )
