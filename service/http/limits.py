"""Checks of a request's head, and that its body is HTTP; the size of a body is checked where it is read."""

from __future__ import annotations

import re

from starlette.types import Scope

from service.errors import BadRequestError, HeadTooLargeError

# Key of a scope's state, if its body turned out to be no HTTP and is not read further: the message for the client.
NO_HTTP = "no_http"

MAX_HEAD_BYTES = 16 * 2**10  # of path, query and headers together
MAX_HEADERS = 100
MAX_PARAMETERS = 100

# A slash, or a character that never needs to be encoded (RFC 3986, section 2.3).
_ENCODED = re.compile(rb"%(?:2[dDeEfF]|3[0-9]|[46][1-9a-fA-F]|[57][0-9aA]|5[fF]|7[eE])")
_UNSEEN = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0))))
_LENGTHS = frozenset({b"content-length", b"transfer-encoding"})


def check_body(scope: Scope) -> None:
    """Called with every request, and again with each part of its body that is read.

    Raises:
        BadRequestError: if what came of the body is no HTTP. The connection then ends.
    """
    if NO_HTTP in scope["state"]:
        raise BadRequestError(scope["state"][NO_HTTP], {"connection": "close"})


def check_head(scope: Scope) -> None:
    """Called with every request.

    Raises:
        BadRequestError: if it has both Content-Length and Transfer-Encoding: a proxy that went by the other one may
            have taken for a part of the body what here is the next request (RFC 9112, section 6.1). The connection then
            ends. Or if its path has an encoded slash, an encoded character that needs no encoding, or a control
            character: routes are matched by the decoded path, but the access rules of a proxy by the path as it was
            sent.
        HeadTooLargeError: if it has more headers, parameters or bytes before its body than are accepted.
    """
    headers, query = scope["headers"], scope["query_string"]
    if _LENGTHS.issubset(name for name, _ in headers):
        message = "the request has both Content-Length and Transfer-Encoding; one of them says where its body ends"
        raise BadRequestError(message, {"connection": "close"})
    if _ENCODED.search(scope.get("raw_path", b"")) or not _UNSEEN.isdisjoint(scope["path"]):
        what = "an encoded slash, letter, digit, '-', '.', '_' or '~', or a control character"
        raise BadRequestError(f"the path has {what}, as no path of the service has")
    if len(headers) > MAX_HEADERS:
        raise HeadTooLargeError(f"the request has {len(headers)} headers; the limit is {MAX_HEADERS}")
    if query.count(b"&") >= MAX_PARAMETERS:
        raise HeadTooLargeError(f"the query has more than {MAX_PARAMETERS} parameters")
    size = len(scope["path"]) + len(query) + sum(len(name) + len(value) for name, value in headers)
    if size > MAX_HEAD_BYTES:
        raise HeadTooLargeError(f"path, query and headers have {size} bytes; the limit is {MAX_HEAD_BYTES}")
