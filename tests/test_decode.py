"""Every image is decoded as it looks, or refused with a reason; limits hold before anything is decompressed."""

from __future__ import annotations

import asyncio
import io
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pictures
import pytest
import torch
from PIL import Image

from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from service.decode import MAX_SIDE, Decoder, decode_image
from service.errors import BadImageError, ServiceError, TooLargeError, UnsupportedTypeError
from service.fair_threads import FairThreads

FORMATS = ("jpeg", "png", "webp", "gif", "bmp")
PREPROCESSING = Preprocessing(size=(16, 16))


def decode(data: bytes, max_pixels: int = 50_000_000) -> torch.Tensor:
    return decode_image(data, FORMATS, max_pixels)


@pytest.fixture
def decoder() -> Iterator[Decoder]:
    """For which 24x18 pixels are as many as are decoded at once, and 100x100 the most of all."""
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as large:
        yield Decoder(FORMATS, 10_000, FairThreads(pool, 4), FairThreads(large, 1), at_once=24 * 18)


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
def test_animations_are_refused(format: str) -> None:
    with pytest.raises(BadImageError, match=r"^the image is animated$"):
        decode(pictures.animated(format))


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_an_animation_of_one_frame_is_a_picture(format: str) -> None:
    data = pictures.encode(pictures.scene(), format, save_all=True)
    assert decode_image(data, (format.lower(),), 50_000_000).shape == (3, 18, 24)


@pytest.mark.parametrize(
    "data", [b"", b"B", b"not an image at all", bytes(100)], ids=["empty", "short", "text", "zeros"]
)
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(BadImageError):
        decode(data)


@pytest.mark.parametrize("format", ["TIFF", "ICO", "AVIF"])
def test_formats_beyond_the_list_are_named(format: str) -> None:
    with pytest.raises(UnsupportedTypeError, match=f"is of the format {format}; accepted are jpeg, png"):
        decode(pictures.encode(pictures.scene(32, 32), format))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_truncated_images_are_refused(format: str, kept: float) -> None:
    data = pictures.encode(pictures.scene(64, 48), format)
    with pytest.raises(BadImageError):
        decode(data[: int(kept * len(data))])


def test_pixels_are_limited_by_the_header_alone() -> None:
    data = pictures.hundred_megapixels()
    started = time.thread_time()
    with pytest.raises(TooLargeError, match="10000x10000 pixels; the limit is 50000000"):
        decode(data)
    assert time.thread_time() - started < 0.1  # decompressing it takes several times as long


@pytest.mark.parametrize("size", [(1, 1_000_000), (1_000_000, 1)])
def test_a_side_is_limited(size: tuple[int, int]) -> None:
    with pytest.raises(TooLargeError, match="the limit for a side is 65535"):
        decode(pictures.encode(Image.new("1", size)))


def test_an_image_of_just_the_limit_is_decoded() -> None:
    assert decode(pictures.png(), max_pixels=24 * 18).shape == (3, 18, 24)
    with pytest.raises(TooLargeError):
        decode(pictures.png(), max_pixels=24 * 18 - 1)


def test_a_side_of_just_the_limit_is_decoded() -> None:
    assert decode(pictures.encode(Image.new("1", (MAX_SIDE, 1)))).shape == (3, 1, MAX_SIDE)


@pytest.mark.usefixtures("little_memory")
def test_a_lack_of_memory_is_not_the_images_fault() -> None:
    with pytest.raises(MemoryError):
        decode(pictures.hundred_megapixels(), max_pixels=10**8)


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


class Held(ThreadPoolExecutor):
    """One thread, which is held up once it has done the first of what it is given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.gate, self.given = threading.Event(), list[Future[Any]]()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given.append(super().submit(fn, *args, **kwargs))
        if len(self.given) == 1:
            super().submit(self.gate.wait, 20)
        return self.given[-1]


@pytest.mark.anyio
async def test_beside_a_bad_one_the_others_need_not_be_decoded() -> None:
    with Held() as pool:
        decoder = Decoder(FORMATS, 10_000, FairThreads(pool, 4), FairThreads(pool, 1))
        with pytest.raises(BadImageError, match=r"^image 0:"):
            await decoder.decode([b"no image", *[pictures.png()] * 5], [PREPROCESSING])
        await asyncio.sleep(0)
        pool.gate.set()
    first, *others = (future.cancelled() for future in pool.given)
    assert not first
    assert len(others) >= 3
    assert all(others)


@dataclass(frozen=True)
class Waiting(Preprocessing):
    """Holds up the thread that decoded an image, with the image in memory."""

    gate: threading.Event = field(default_factory=threading.Event)
    begun: list[str] = field(default_factory=list)

    def resize(self, image: torch.Tensor) -> torch.Tensor:
        self.begun.append(threading.current_thread().name)
        assert self.gate.wait(20)
        return super().resize(image)


@pytest.mark.anyio
async def test_large_images_take_turns_and_small_ones_do_not_wait(decoder: Decoder) -> None:
    large, waiting = pictures.encode(pictures.scene(25, 18)), Waiting((16, 16))
    decoding = asyncio.ensure_future(decoder.decode([large] * 3, [waiting]))
    try:
        for _ in range(3):  # as many as there are threads, and one more
            async with asyncio.timeout(10):
                await decoder.decode([pictures.png()], [PREPROCESSING])
        assert len(waiting.begun) <= 1
    finally:
        waiting.gate.set()
    for (one,) in await decoding:
        assert torch.equal(one, PREPROCESSING.resize(decode(large)))
    assert len(set(waiting.begun)) == 1


@pytest.mark.anyio
async def test_an_image_does_not_wait_for_all_images_of_another_request(decoder: Decoder) -> None:
    many, waiting = [pictures.png()] * 32, Waiting((16, 16))
    decoding = asyncio.ensure_future(decoder.decode(many, [waiting]))
    for _ in range(3):
        await asyncio.sleep(0)  # then the pool has what it is given of them
    alone = asyncio.ensure_future(decoder.decode([pictures.png(1)], [PREPROCESSING]))
    await asyncio.sleep(0)
    waiting.gate.set()
    await alone
    assert len(waiting.begun) < len(many)
    assert len(await decoding) == len(many)


@pytest.mark.anyio
async def test_an_image_does_not_wait_for_all_requests_of_another_task(decoder: Decoder) -> None:
    waiting = Waiting((16, 16))
    hot = [asyncio.ensure_future(decoder.decode([pictures.png()], [waiting], "hot")) for _ in range(32)]
    cold = asyncio.ensure_future(decoder.decode([pictures.png(1)], [PREPROCESSING], "cold"))
    for _ in range(3):
        await asyncio.sleep(0)
    waiting.gate.set()
    await cold
    assert len(waiting.begun) < len(hot) / 2
    await asyncio.gather(*hot)


@pytest.mark.anyio
async def test_whose_time_is_up_before_its_turn_is_not_decoded(decoder: Decoder) -> None:
    large, first, second = pictures.encode(pictures.scene(25, 18)), Waiting((16, 16)), Waiting((16, 16))
    decoding = asyncio.ensure_future(decoder.decode([large], [first]))
    try:
        await decoder.decode([pictures.png()], [PREPROCESSING])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await decoder.decode([large], [second])
    finally:
        first.gate.set()
        second.gate.set()
    await decoding
    await decoder.decode([large], [PREPROCESSING])  # its turn comes after
    assert not second.begun


@pytest.mark.anyio
async def test_what_is_too_large_is_refused_before_its_turn(decoder: Decoder) -> None:
    waiting = Waiting((16, 16))
    decoding = asyncio.ensure_future(decoder.decode([pictures.encode(pictures.scene(25, 18))], [waiting]))
    try:
        async with asyncio.timeout(10):
            with pytest.raises(TooLargeError, match="101x100 pixels; the limit is 10000"):
                await decoder.decode([pictures.encode(pictures.scene(101, 100))], [PREPROCESSING])
    finally:
        waiting.gate.set()
    await decoding
