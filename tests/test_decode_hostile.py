"""A file of which little is shown, but that makes its reader do a lot, is refused before it has."""

from __future__ import annotations

import struct
import zlib

import pictures
import pytest
import torch

from service.decode import decode_image
from service.errors import BadImageError, TooLargeError


def decode(data: bytes) -> torch.Tensor:
    return decode_image(data, ("jpeg", "png", "webp", "gif", "bmp"), 50_000_000)


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """A piece of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def after_head(piece: bytes, times: int, format: str = "PNG") -> bytes:
    """An image into which something is put again and again, before its pixels."""
    data = pictures.encode(pictures.scene(), format)
    start = {"PNG": 33, "JPEG": 2, "GIF": 13 + 3 * (2 << (data[10] & 7))}[format]
    return data[:start] + times * piece + data[start:]


def test_the_frames_of_an_animation_are_not_counted() -> None:
    frame = b",\0\0\0\0\1\0\1\0\0\2\2D\1\0"
    data = b"GIF89a\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff" + 300_000 * frame + b";"
    with pytest.raises(BadImageError, match="animated"):  # who counted them would meet too many pieces
        decode(data)


@pytest.mark.parametrize(("format", "piece"), [("GIF", b"!\xfe\0"), ("PNG", chunk(b"teXt")), ("JPEG", b"\xff\xef\0\2")])
def test_an_image_in_too_many_pieces_is_refused(format: str, piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.decode._READS", 1000)
    assert decode(after_head(piece, 100, format)).shape == (3, 18, 24)
    with pytest.raises(BadImageError, match="too many pieces"):
        decode(after_head(piece, 1000, format))


def test_frames_and_pieces_after_the_pixels_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.decode._READS", 1000)
    for format, piece in {"GIF": b"!\xfe\0", "PNG": chunk(b"teXt")}.items():
        data = pictures.encode(pictures.scene(), format)
        end = len(data) - {"GIF": 1, "PNG": 12}[format]
        with pytest.raises(BadImageError, match="too many pieces"):
            decode(data[:end] + 1000 * piece + data[end:])


def test_what_makes_decoders_start_over_is_counted() -> None:
    profile = chunk(b"iCCP", b"a\0\0" + zlib.compress(b"a"))
    assert decode(after_head(profile, 10)).shape == (3, 18, 24)
    with pytest.raises(BadImageError, match="iCCP"):
        decode(after_head(profile, 11))
    exif = b"\xff\xe1\0\x0aExif\0\0MM"
    assert decode(after_head(exif, 16, "JPEG")).shape == (3, 18, 24)
    with pytest.raises(BadImageError, match="Exif"):
        decode(after_head(exif, 17, "JPEG"))
    with pytest.raises(BadImageError, match="8BIM"):
        decode(after_head(b"\xff\xed\0\x10Photoshop 3.0\0", 1, "JPEG") + 10_001 * b"8BIM")
    jpeg = pictures.LEGITIMATE["progressive jpeg"]
    scans, last = jpeg.count(b"\xff\xda\0"), jpeg[jpeg.rindex(b"\xff\xda\0") : -2]
    assert decode(jpeg[:-2] + (50 - scans) * last + jpeg[-2:]).shape == (3, 18, 24)
    with pytest.raises(BadImageError, match="more than 50 times"):
        decode(jpeg[:-2] + (51 - scans) * last + jpeg[-2:])


def run_length_bmp(width: int, height: int) -> bytes:
    """A BMP whose rows are one run each."""
    rows, start = height * bytes([min(width, 255), 1, 0, 0]) + b"\0\1", 54 + 4 * 256
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(rows), 0, 0, 256, 0)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + bytes(range(256)) * 4 + rows


def test_run_length_coded_bmps_are_to_be_small() -> None:
    assert decode(run_length_bmp(200, 100)).shape == (3, 100, 200)
    with pytest.raises(TooLargeError, match="2000x2001 pixels; the limit is 4000000"):
        decode(run_length_bmp(2000, 2001))
