"""Request targets in absolute form, as requests to a proxy have them (RFC 9112, section 3.2.2), into origin form."""

from __future__ import annotations

import re

import h11

_ABSOLUTE = re.compile(rb"https?://([^/?@]+)", re.IGNORECASE)
# RFC 3986, section 3.2.2, and a port.
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.]+\]|(?:[0-9A-Za-z._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+)(?::([0-9]{0,5}))?")
_MAX_PORT = 2**16 - 1


def in_origin_form(request: h11.Request) -> h11.Request:
    """The same request with path and query alone as its target; the target's host replaces that of the header.

    Raises:
        h11.RemoteProtocolError: if the target has no valid host.
    """
    absolute = _ABSOLUTE.match(request.target)
    if absolute is None:
        return request
    host = _HOST.fullmatch(absolute[1])
    if host is None or int(host[1] or 0) > _MAX_PORT:
        raise h11.RemoteProtocolError("the target names no host")
    target = request.target[absolute.end() :]
    return h11.Request(
        method=request.method,
        target=target if target.startswith(b"/") else b"/" + target,
        headers=[(b"host", absolute[1]), *(header for header in request.headers if header[0] != b"host")],
        http_version=request.http_version,
    )
