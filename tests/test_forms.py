"""Forms, beside Python's own reader of them."""

from __future__ import annotations

import email
import random
from email import policy

import pytest
from asgi import multipart

from service.errors import BadRequestError, TooLargeError
from service.forms import _SLICE, boundary_of, parse_form

BOUNDARY = b"frontier"
IMAGES = [b"one", bytes(range(256)), b"--frontier\r\r\n\r\n--frontie", b"", b"\r\n", b"\r\n--frontie"]
NOTHING = b"Nothing for --frontier\r\n--front\r\n\r\n"


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=frontier", b"frontier"),
        ("Multipart/Form-Data;charset=utf-8 ;BOUNDARY = frontier; a=b", b"frontier"),
        ('multipart/form-data; boundary="a boundary; of, characters"', b"a boundary; of, characters"),
        ("multipart/form-data; boundary=----WebKitFormBoundaryx+/'()", b"----WebKitFormBoundaryx+/'()"),
        (f"multipart/form-data; boundary={'b' * 70}", b"b" * 70),
    ],
)
def test_a_content_type_names_the_boundary(content_type: str, boundary: bytes) -> None:
    assert boundary_of(content_type) == boundary


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("multipart/form-data", "multipart/form-data names no boundary"),
        ("multipart/form-data; boundary=", "names no boundary"),
        ('multipart/form-data; boundary=""', "names no boundary"),
        ("multipart/form-data; xboundary=frontier", "names no boundary"),
        (f"multipart/form-data; boundary={'b' * 71}", "the boundary has 71 characters; a form's has at most 70"),
    ],
)
def test_or_is_refused(content_type: str, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        boundary_of(content_type)


@pytest.mark.parametrize("preamble", [b"", b"\r\n", b"\n", NOTHING, b"--\n"])
@pytest.mark.parametrize("epilogue", [b"", b"\r\n", b"and more\r\n--frontier\r\n"])
def test_what_surrounds_the_parts_is_no_part(preamble: bytes, epilogue: bytes) -> None:
    assert parse_form(preamble + multipart(IMAGES) + epilogue, BOUNDARY, len(IMAGES)) == IMAGES


def test_blanks_may_follow_a_boundary_and_a_part_needs_no_headers() -> None:
    assert parse_form(b"--b \t\r\n\r\nx\r\n--b\r\n\r\n\r\n--b--", b"b", 2) == [b"x", b""]


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_those_that_python_finds(seed: int) -> None:
    draw = random.Random(seed)
    pieces = [b"\r", b"\n", b"\r\n", b"--", b"frontie", b"x", b":", b" "]  # none of which makes a boundary
    parts = [b"".join(draw.choices(pieces, k=draw.randrange(30))) for _ in range(draw.randrange(1, 5))]
    form = multipart(parts)
    message = email.message_from_bytes(
        b"content-type: multipart/form-data; boundary=frontier\r\n\r\n" + form, policy=policy.HTTP
    )
    read = [part.get_payload(decode=True) for part in message.get_payload()]  # type: ignore[union-attr]
    assert parse_form(form, BOUNDARY, len(parts)) == parts == read


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"not a form", "ends before its first boundary"),
        (b"not a --frontier", "ends before its first boundary"),
        (b"--frontier", "ends before its last boundary"),
        (b"--frontier\r\na: b\r\n", "ends before its last boundary"),
        (b"--frontier\r\na: b\r\n\r\nx\n--frontier--", "ends before its last boundary"),
        (b"--frontier--\r\n", "has no parts"),
        (b"--frontiers\r\n\r\nx\r\n--frontiers--", "is not multipart/form-data: a line that begins with the boundary"),
        (b"--frontier\r\n\r\nx\r\n--frontierland\r\n--frontier--", "a line that begins with the boundary goes on"),
        (b"--frontier\r\n--frontier--", "a part has no empty line behind its headers"),
        (b"--frontier\r\na: b\r\n--frontier\r\n\r\nx\r\n--frontier--", "a part has no empty line behind its headers"),
    ],
)
def test_what_is_no_form_is_said(body: bytes, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        parse_form(body, BOUNDARY, 3)


@pytest.mark.parametrize("offset", [-1, 0, 1, 5])
def test_a_boundary_is_found_across_the_slices_that_are_searched(offset: int) -> None:
    image = bytes(_SLICE - len(multipart([b""])) + offset + 2 * len("\r\n--frontier--"))
    assert parse_form(multipart([image, b"x"]), BOUNDARY, 2) == [image, b"x"]
    assert parse_form(bytes(_SLICE - 3 + offset) + b"\r\n" + multipart([b"x"]), BOUNDARY, 1) == [b"x"]


def test_a_form_is_refused_for_one_part_too_many() -> None:
    assert parse_form(multipart([b"x"] * 3), BOUNDARY, 3) == [b"x"] * 3
    with pytest.raises(TooLargeError, match="more than 3 images"):
        parse_form(multipart([b"x"] * 4), BOUNDARY, 3)
