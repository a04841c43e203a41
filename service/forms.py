"""Forms: the parts of a body of multipart/form-data, whatever their names (RFC 7578, and RFC 2046, section 5.1)."""

from __future__ import annotations

import re

from service.errors import BadRequestError, TooLargeError

MULTIPART = "multipart/form-data"

_BOUNDARY = re.compile(r';\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_MOST = 70  # characters of a boundary
_BLANKS = b" \t"
_LINE, _EMPTY_LINE = b"\r\n", b"\r\n\r\n"


def boundary_of(content_type: str) -> bytes:
    """The boundary that the content type of a form names.

    Raises:
        BadRequestError: if it names none, or one that is too long.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise BadRequestError(f"the content type {MULTIPART} names no boundary")
    boundary = (found[1] or found[2]).encode("latin-1")
    if len(boundary) > _MOST:
        raise BadRequestError(f"the boundary has {len(boundary)} characters; a form's has at most {_MOST}")
    return boundary


def parse_form(body: bytes, boundary: bytes, max_parts: int) -> list[bytes]:
    """The parts without their headers, at least one; what precedes the first boundary or follows the last is ignored.

    It takes time for the length of the body, and not for what is in it, as whatever looks at each byte in Python would.

    Raises:
        BadRequestError: if the body is no such form, is truncated, or has no parts.
        TooLargeError: if there are more than `max_parts`.
    """
    first, further = b"\n--" + boundary, b"\r\n--" + boundary
    found = -1 if body.startswith(first[1:]) else body.find(first)
    if found < 0 and not body.startswith(first[1:]):
        raise _truncated("first")
    parts: list[bytes] = []
    at = found + len(first)
    while not body.startswith(b"--", at):
        if len(parts) == max_parts:
            raise too_many(max_parts)
        begin = _behind_headers(body, at, further)
        end = body.find(further, begin)
        if end < 0:
            raise _truncated("last")
        parts.append(body[begin:end])
        at = end + len(further)
    if not parts:
        raise BadRequestError(f"the {MULTIPART} body has no parts")
    return parts


def too_many(max_images: int) -> TooLargeError:
    """The error for more images than a request may have."""
    return TooLargeError(f"the request has more than {max_images} images")


def _behind_headers(body: bytes, at: int, further: bytes) -> int:
    """Where the data begins of the part whose boundary ends at `at`."""
    line = body.find(_LINE, at)
    if body[at : line if line >= 0 else None].strip(_BLANKS):
        raise BadRequestError(f"the body is not {MULTIPART}: a line that begins with the boundary goes on behind it")
    headers = body.find(_EMPTY_LINE, at)
    if body.find(further, at, headers if headers >= 0 else None) >= 0:
        raise BadRequestError(f"the body is not {MULTIPART}: a part has no empty line behind its headers")
    if headers < 0:
        raise _truncated("last")
    return headers + len(_EMPTY_LINE)


def _truncated(which: str) -> BadRequestError:
    return BadRequestError(f"the {MULTIPART} body ends before its {which} boundary")
