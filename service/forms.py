"""Forms: the parts of a body of multipart/form-data, whatever their names (RFC 7578, and RFC 2046, section 5.1)."""

from __future__ import annotations

import re

from service.errors import BadRequestError, TooLargeError

MULTIPART = "multipart/form-data"

_BOUNDARY = re.compile(r';\s*boundary\s*=\s*(?:"([^"]+)"|([^\s;"]+))', re.IGNORECASE)
_MOST = 70  # characters of a boundary
_BLANKS = b" \t"
_SLICE = 2**18  # bytes
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

    Raises:
        BadRequestError: if the body is no such form, is truncated, or has no parts.
        TooLargeError: if there are more than `max_parts`.
    """
    first, further = b"\n--" + boundary, b"\r\n--" + boundary
    if body.startswith(first[1:]):
        at = len(first) - 1
    elif (found := _find(body, first, 0)) >= 0:
        at = found + len(first)
    else:
        raise _truncated("first")
    parts: list[bytes] = []
    while not body.startswith(b"--", at):
        if len(parts) == max_parts:
            raise too_many(max_parts)
        begin = _behind_headers(body, at, further)
        end = _find(body, further, begin)
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
    line = _find(body, _LINE, at)
    if body[at : line if line >= 0 else None].strip(_BLANKS):
        raise BadRequestError(f"the body is not {MULTIPART}: a line that begins with the boundary goes on behind it")
    headers = _find(body, _EMPTY_LINE, at)
    if _find(body, further, at, headers if headers >= 0 else len(body)) >= 0:
        raise BadRequestError(f"the body is not {MULTIPART}: a part has no empty line behind its headers")
    if headers < 0:
        raise _truncated("last")
    return headers + len(_EMPTY_LINE)


def _find(body: bytes, what: bytes, start: int, stop: int | None = None) -> int:
    """As `bytes.find`, which takes Python's lock for as long as it takes, but slice by slice."""
    stop = len(body) if stop is None else stop
    for begin in range(start, stop, _SLICE):
        found = body.find(what, begin, min(stop, begin + _SLICE + len(what) - 1))
        if found >= 0:
            return found
    return -1


def _truncated(which: str) -> BadRequestError:
    return BadRequestError(f"the {MULTIPART} body ends before its {which} boundary")
