"""Pillow images as files: no pixel means another thing to the service than it does here."""

from __future__ import annotations

import io
import struct

import numpy as np
import pictures
import pytest
import torch
from PIL import Image, ImageOps, features
from PIL.ExifTags import Base

from fpet.client.pictures import Encoded, batches, single
from fpet.errors import ImageError
from fpet.images import to_rgb

SCENE = pictures.scene()
GREY = np.linspace(0, 70_000, 24 * 18).reshape(18, 24)
MODES = {
    **{mode: SCENE.convert(mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB")},
    "RGBa": SCENE.convert("RGBA").convert("RGBa"),
    "PA": SCENE.convert("PA"),
    "I": Image.fromarray(GREY.astype(np.int32)),
    "I;16": Image.fromarray(GREY.clip(0, 65535).astype(np.uint16)),
}


def decoded(image: object) -> torch.Tensor:
    return to_rgb(Image.open(io.BytesIO(single(image).data)))  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_keeps_its_meaning(mode: str) -> None:
    assert MODES[mode].mode == mode
    assert torch.equal(decoded(MODES[mode]), to_rgb(MODES[mode].copy()))


@pytest.mark.parametrize("kind", pictures.LEGITIMATE)
def test_an_opened_file_is_sent_as_it_looks(kind: str) -> None:
    data = pictures.LEGITIMATE[kind]
    assert torch.equal(decoded(Image.open(io.BytesIO(data))), to_rgb(Image.open(io.BytesIO(data))))
    assert single(data).data == data


def test_exif_data_that_pillow_reads_and_cannot_write_is_left_out() -> None:
    # To be turned; and the unit of the resolution is a fraction, where there should be a whole number.
    turned = struct.pack("<HHIHH", Base.Orientation, 3, 1, 6, 0)
    odd = struct.pack("<HHIf", Base.ResolutionUnit, 11, 1, 2.5)
    exif = b"Exif\0\0" + struct.pack("<2sHIH", b"II", 42, 8, 2) + turned + odd + bytes(4)
    data = pictures.encode(SCENE, "JPEG", exif=exif)
    with pytest.raises(struct.error):
        ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert torch.equal(decoded(Image.open(io.BytesIO(data))), to_rgb(Image.open(io.BytesIO(data))))


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
def test_a_damaged_avif_is_an_error_of_its_image() -> None:
    data = pictures.damaged_avif()
    with pytest.raises(ImageError):
        to_rgb(Image.open(io.BytesIO(data)))
    with pytest.raises(ImageError):
        single(Image.open(io.BytesIO(data)))


def test_pixels_are_sent_as_they_are() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(decoded(pixels).permute(1, 2, 0), pixels)
    assert np.array_equal(decoded(pixels[::-1, ::2]).permute(1, 2, 0), pixels[::-1, ::2])


@pytest.mark.parametrize(
    "wrong",
    [
        Image.new("F", (3, 3)),
        SCENE.convert("LA").convert("La"),
        Image.open(io.BytesIO(pictures.png()[:-30])),
        np.zeros((4, 4), dtype=np.uint8),
        np.zeros((4, 4, 4), dtype=np.uint8),
        np.zeros((0, 4, 3), dtype=np.uint8),
        np.zeros((4, 4, 3), dtype=np.int64),
        None,
    ],
    ids=["float", "premultiplied grey", "truncated", "grey", "RGBA", "empty", "int64", "None"],
)
def test_an_image_in_an_unsupported_form_is_an_error(wrong: object) -> None:
    with pytest.raises(ImageError, match=r"^image 0: "):
        single(wrong)  # type: ignore[arg-type]


def test_nothing_is_read_before_its_batch_is_asked_for() -> None:
    read = 0

    def files() -> object:
        nonlocal read
        for read in range(1, 10):  # noqa: B007  # counts what was taken
            yield b"x" * 1000

    found = batches(files(), 4, 4000)  # type: ignore[arg-type]
    assert len(next(found)) == 2
    assert read == 3


def test_an_image_that_alone_is_too_long_goes_alone() -> None:
    images = [b"x" * 10, b"x" * 5000, b"x" * 20]
    lengths = [[len(one.data) for one in batch if isinstance(one, Encoded)] for batch in batches(images, 16, 4000)]
    assert lengths == [[10], [5000], [20]]


def test_a_level_of_sixteen_bits_that_is_transparent_stays_so() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.array([[1000, 1001]], np.uint16)).save(buffer, "PNG", transparency=1000)
    assert decoded(Image.open(buffer))[:, 0].tolist() == [[255, 4]] * 3
