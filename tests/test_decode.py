"""Every image is decoded as it looks, or refused with a reason; limits hold before anything is decompressed."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pictures
import pytest
import torch
from PIL import Image

from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from service.decode import Decoder, decode_image
from service.errors import BadImageError, ServiceError, TooLargeError, UnsupportedTypeError

FORMATS = ("jpeg", "png", "webp", "gif", "bmp")
PREPROCESSING = Preprocessing(size=(16, 16))


def decode(data: bytes, max_pixels: int = 50_000_000) -> torch.Tensor:
    return decode_image(data, FORMATS, max_pixels)


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    with ThreadPoolExecutor(2) as pool:
        yield Decoder(FORMATS, 50_000_000, pool)


@pytest.mark.parametrize("kind", pictures.LEGITIMATE)
def test_legitimate_images_are_seen_as_in_training(kind: str) -> None:
    data = pictures.LEGITIMATE[kind]
    with Image.open(io.BytesIO(data)) as image:
        expected = to_rgb(image)
    pixels = decode(data)
    assert pixels.dtype == torch.uint8
    assert torch.equal(pixels, expected)


def test_the_orientation_in_the_exif_data_is_honoured() -> None:
    assert decode(pictures.rotated()).shape == (3, 24, 18)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP"])
def test_animations_are_refused_with_their_number_of_frames(format: str) -> None:
    with pytest.raises(BadImageError, match="animated, it has 3 frames"):
        decode(pictures.animated(format))


@pytest.mark.parametrize(
    "data", [b"", b"B", b"not an image at all", bytes(100)], ids=["empty", "short", "text", "zeros"]
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(BadImageError):
        decode(data)


@pytest.mark.parametrize("format", ["TIFF", "ICO", "AVIF"])
def test_formats_beyond_the_list_are_named(format: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=f"is a {format}; accepted are jpeg, png"):
        decode(pictures.encode(pictures.scene(32, 32), format))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_truncated_images_are_refused(format: str, kept: float) -> None:
    data = pictures.encode(pictures.scene(64, 48), format)
    with pytest.raises(BadImageError):
        decode(data[: int(kept * len(data))])


def test_pixels_are_limited_by_the_header_alone() -> None:
    data = pictures.hundred_megapixels()
    started = time.perf_counter()
    with pytest.raises(TooLargeError, match="10000x10000 pixels; the limit is 50000000"):
        decode(data)
    assert time.perf_counter() - started < 0.1  # decompressing it takes several times as long


@pytest.mark.parametrize("size", [(1, 1_000_000), (1_000_000, 1)])
def test_a_side_is_limited(size: tuple[int, int]) -> None:
    with pytest.raises(TooLargeError, match="the limit for a side is 65535"):
        decode(pictures.encode(Image.new("1", size)))


def test_an_image_of_just_the_limit_is_decoded() -> None:
    assert decode(pictures.png(), max_pixels=24 * 18).shape == (3, 18, 24)
    with pytest.raises(TooLargeError):
        decode(pictures.png(), max_pixels=24 * 18 - 1)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "gif", "bmp", "palette with alpha", "multi-picture"])
def test_damaged_bytes_give_pixels_or_a_reason_and_nothing_else(kind: str) -> None:
    generator = random.Random(kind)
    for _ in range(200):
        data = bytearray(pictures.LEGITIMATE[kind])
        for _ in range(generator.randrange(1, 6)):
            data[generator.randrange(len(data))] = generator.randrange(256)
        with suppress(ServiceError):
            assert decode(bytes(data), max_pixels=10_000).shape[0] == 3


@pytest.mark.anyio
async def test_images_come_back_in_order_and_in_the_size_of_the_task(decoder: Decoder) -> None:
    data = [pictures.png(seed) for seed in range(8)]
    pixels = await decoder.decode(data, [PREPROCESSING])
    for (one,), encoded in zip(pixels, data, strict=True):
        assert tuple(one.shape) == (3, 16, 16)
        assert torch.equal(one, PREPROCESSING.resize(decode(encoded)))


@pytest.mark.anyio
async def test_each_task_gets_the_image_as_it_takes_it(decoder: Decoder) -> None:
    each = [
        PREPROCESSING,
        Preprocessing((16, 16), mean=(0.1, 0.2, 0.3)),
        Preprocessing((8, 24)),
        Preprocessing((16, 16), interpolation="bilinear"),
    ]
    (pixels,) = await decoder.decode([pictures.png()], each)
    for one, preprocessing in zip(pixels, each, strict=True):
        assert torch.equal(one, preprocessing.resize(decode(pictures.png())))


@pytest.mark.anyio
async def test_the_bad_one_of_several_is_named(decoder: Decoder) -> None:
    with pytest.raises(BadImageError, match=r"^image 1: the bytes are not an image$"):
        await decoder.decode([pictures.png(), b"not an image"], [PREPROCESSING])
    with pytest.raises(BadImageError, match=r"^the bytes are not an image$"):
        await decoder.decode([b"not an image"], [PREPROCESSING])
