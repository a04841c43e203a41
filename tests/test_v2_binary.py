"""The binary tensor extension and compressed bodies: what comes in comes out, and nothing else is taken for it."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from service.errors import BadRequestError, ServiceError, TooLargeError, UnsupportedTypeError
from service.v2.binary import inflate, pack_bytes, split, unpack_bytes

BODY = b"what is sent" * 50
LIMIT = 1000
ZIPPED = gzip.compress(BODY, mtime=0)  # which would else say when


def deflate_without_zlib(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize("elements", [[], [b""], [b"a", b"", b"\0" * 300], [b"\xff\xfe", b"x" * 70_000]])
def test_what_is_packed_is_unpacked(elements: list[bytes]) -> None:
    assert unpack_bytes(memoryview(pack_bytes(elements)), len(elements)) == elements


def test_lengths_are_four_bytes_little_endian() -> None:
    assert pack_bytes([b"ab"]) == b"\x02\0\0\0ab"


@pytest.mark.parametrize(
    ("data", "count", "message"),
    [
        (b"", 1, "has 0 elements; its shape asks for 1"),
        (b"\x01\0\0", 1, "element 0 of the BYTES tensor ends inside its length"),
        (b"\x02\0\0\0a", 1, "element 0 of the BYTES tensor has 2 bytes, 1 are left"),
        (b"\xff\xff\xff\xffa", 1, "element 0 of the BYTES tensor has 4294967295 bytes, 1 are left"),
        (b"\x01\0\0\0a", 2, "has 1 elements; its shape asks for 2"),
        (b"\x01\0\0\0ab", 1, "has 1 elements and 1 bytes more; its shape asks for 1"),
        (b"\x01\0\0\0a" * 3, 2, "has 2 elements and 5 bytes more; its shape asks for 2"),
    ],
)
def test_lengths_that_do_not_add_up_are_refused(data: bytes, count: int, message: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        unpack_bytes(memoryview(data), count)
    assert message in str(caught.value)


def test_the_header_says_where_the_json_ends() -> None:
    assert split(b"{}", None) == (b"{}", None)
    text, behind = split(b"{}abc", "2")
    assert (text, bytes(behind or b"")) == (b"{}", b"abc")
    text, behind = split(b"{}", "2")
    assert (text, bytes(behind or b"")) == (b"{}", b"")


@pytest.mark.parametrize("length", ["", "6", "-1", "+2", " 2", "2_0", "0x2", "2.0", "two", "٢", "9" * 5000])
def test_a_header_length_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(BadRequestError, match=r"Inference-Header-Content-Length is .*, the body has 5 bytes"):
        split(b"{}abc", length)


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (BODY, None),
        (BODY, "identity"),
        (ZIPPED, "gzip"),
        (ZIPPED, " GZip"),
        (ZIPPED, "x-gzip"),
        (zlib.compress(BODY), "deflate"),
    ],
)
def test_bodies_are_inflated(body: bytes, encoding: str | None) -> None:
    assert inflate(body, encoding, LIMIT) == BODY


@pytest.mark.parametrize(
    ("body", "encoding", "error", "message"),
    [
        (BODY, "br", UnsupportedTypeError, "content encoding 'br' is not accepted"),
        (BODY, "gzip, gzip", UnsupportedTypeError, "is not accepted"),
        (BODY, "gzip", BadRequestError, "the body is not gzip"),
        (deflate_without_zlib(BODY), "deflate", BadRequestError, "the body is not deflate"),
        (ZIPPED[:-9], "gzip", BadRequestError, "the gzip body is truncated"),
        (ZIPPED[:-8] + bytes(8), "gzip", BadRequestError, "the body is not gzip"),
        (ZIPPED + b"xy", "gzip", BadRequestError, "2 bytes behind the end of its gzip data"),
        (gzip.compress(bytes(LIMIT + 1), mtime=0), "gzip", TooLargeError, "longer than the limit of 1000 bytes"),
    ],
)
def test_bodies_that_do_not_inflate_are_refused(
    body: bytes, encoding: str, error: type[ServiceError], message: str
) -> None:
    with pytest.raises(error, match=message):
        inflate(body, encoding, LIMIT)


def test_a_bomb_is_not_inflated() -> None:
    bomb = gzip.compress(bytes(50 * 2**20), compresslevel=1)
    tracemalloc.start()
    with pytest.raises(TooLargeError):
        inflate(bomb, "gzip", LIMIT)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2 * len(bomb)
