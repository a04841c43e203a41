"""The binary tensor data extension: a JSON header, and behind it the tensors' bytes; and compressed bodies."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from service.errors import BadRequestError, TooLargeError, UnsupportedTypeError

HEADER_LENGTH = "inference-header-content-length"

_GZIP = 16 + zlib.MAX_WBITS
_WINDOW_BITS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}  # "x-gzip" is the older name (RFC 9110)
_LENGTH = struct.Struct("<I")


def inflate(body: bytes, encoding: str | None, max_bytes: int) -> bytes:
    """Decompresses a body by its Content-Encoding, to at most `max_bytes`: nothing beyond them is inflated.

    Raises:
        UnsupportedTypeError: if the encoding is neither identity, gzip nor deflate.
        BadRequestError: if the body is not of its encoding, is truncated, or has bytes behind its end.
        TooLargeError: if it inflates to more than `max_bytes`.
    """
    encoding = (encoding or "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in _WINDOW_BITS:
        message = f"content encoding {encoding[:20]!r} is not accepted; send gzip or deflate"
        raise UnsupportedTypeError(message, {"accept-encoding": "gzip, deflate"})
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        inflated = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise BadRequestError(f"the body is not {encoding}: {error}") from error
    if len(inflated) > max_bytes:
        raise TooLargeError(f"the inflated body is longer than the limit of {max_bytes} bytes")
    if not stream.eof:
        raise BadRequestError(f"the {encoding} body is truncated")
    if stream.unused_data:
        raise BadRequestError(f"the body has {len(stream.unused_data)} bytes behind the end of its {encoding} data")
    return inflated


def split(body: bytes, header_length: str | None) -> tuple[bytes, memoryview | None]:
    """The JSON, and what is behind it; None if the request has no header that says where the JSON ends.

    Raises:
        BadRequestError: for a length that is no number of bytes in the body.
    """
    if header_length is None:
        return body, None
    # Not int(): it also takes signs, spaces and underscores.
    digits = header_length.isascii() and header_length.isdecimal() and len(header_length) < 20
    if not digits or int(header_length) > len(body):
        raise BadRequestError(
            f"the header Inference-Header-Content-Length is {header_length[:20]!r}, the body has {len(body)} bytes"
        )
    length = int(header_length)
    return body[:length], memoryview(body)[length:]


def unpack_bytes(data: memoryview, count: int) -> list[bytes]:
    """The elements of a BYTES tensor, each behind its length in 4 bytes, little-endian.

    Raises:
        BadRequestError: unless `data` holds exactly `count`.
    """
    elements: list[bytes] = []
    offset = 0
    while offset < len(data) and len(elements) < count:
        if offset + _LENGTH.size > len(data):
            raise BadRequestError(f"element {len(elements)} of the BYTES tensor ends inside its length")
        (length,) = _LENGTH.unpack_from(data, offset)
        offset += _LENGTH.size
        if offset + length > len(data):
            raise BadRequestError(
                f"element {len(elements)} of the BYTES tensor has {length} bytes, {len(data) - offset} are left"
            )
        elements.append(bytes(data[offset : offset + length]))
        offset += length
    if len(elements) < count or offset < len(data):
        rest = f" and {len(data) - offset} bytes more" if offset < len(data) else ""
        raise BadRequestError(f"the BYTES tensor has {len(elements)} elements{rest}; its shape asks for {count}")
    return elements


def pack_bytes(elements: Sequence[bytes]) -> bytes:
    """A BYTES tensor of these elements, as `unpack_bytes` reads it."""
    return b"".join(part for element in elements for part in (_LENGTH.pack(len(element)), element))
