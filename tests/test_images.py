"""Every kind of still picture becomes the RGB pixels that a person sees, the same for training and serving."""

from __future__ import annotations

import io
import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from fpet.errors import ImageError, UnsupportedError
from fpet.images import _STRIP, to_rgb
from fpet.preprocess import Preprocessing, _remembered, normalize

COLUMNS = 2_000
ROWS = _STRIP // COLUMNS + 7  # a strip and a short one
RED, WHITE = [255, 0, 0], [255, 255, 255]


def reopened(image: Image.Image, image_format: str, **options: object) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return Image.open(io.BytesIO(buffer.getvalue()))


def pixel(image: Image.Image, row: int = 0, column: int = 0) -> list[int]:
    found: list[int] = to_rgb(image)[:, row, column].tolist()
    return found


def at_once(image: Image.Image) -> torch.Tensor:
    """What `to_rgb` is to give, with the whole picture in memory at every step."""
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        values = np.where(values == image.info.get("transparency"), 65535, values)
        image = Image.fromarray(((values + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


def noise(mode: str, rows: int = ROWS, columns: int = COLUMNS) -> Image.Image:
    """A picture in which hardly a pixel is like its neighbour; levels of I and I;16 go beyond what is read of them."""
    generator = np.random.default_rng(0)
    if mode.startswith("I"):
        low, high, kind = (0, 2**16, np.uint16) if mode == "I;16" else (-(2**16), 2**17, np.int32)
        return Image.fromarray(generator.integers(low, high, (rows, columns), dtype=kind))
    if mode in ("PA", "1"):
        return noise("LA" if mode == "PA" else "L", rows, columns).convert(mode)
    bands = {"LA": 2, "RGB": 3}.get(mode, 4 if len(mode) == 4 else 1)
    image = Image.frombytes("L" if mode == "P" else mode, (columns, rows), generator.bytes(rows * columns * bands))
    if mode == "P":
        image.putpalette(generator.bytes(768))
    return image


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "I", "I;16"])
def test_strips_of_a_picture_are_those_of_the_whole(mode: str) -> None:
    image = noise(mode)
    assert image.mode == mode
    found = to_rgb(image)
    assert torch.equal(found, at_once(image))
    assert found.stride() == (1, 3 * COLUMNS, 3)


@pytest.mark.parametrize(
    ("mode", "transparency"), [("P", 7), ("P", bytes(range(256))), ("L", 7), ("RGB", (1, 2, 3)), ("I;16", 7)]
)
def test_strips_of_a_picture_with_separate_transparency_are_those_of_the_whole(mode: str, transparency: object) -> None:
    reopen = partial(reopened, noise(mode), "PNG", transparency=transparency, compress_level=0)
    assert "transparency" in reopen().info
    assert torch.equal(to_rgb(reopen()), at_once(reopen()))


@pytest.mark.parametrize("orientation", range(1, 10))
@pytest.mark.parametrize("mode", ["RGB", "I;16"])
def test_strips_of_a_picture_in_any_orientation_are_those_of_the_whole(mode: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    reopen = partial(reopened, noise(mode), "PNG", exif=exif, compress_level=0)
    found, expected = to_rgb(reopen()), at_once(reopen())
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("size", [(1, 3), (3, 1), (1, _STRIP + 1), (_STRIP + 1, 2)])
def test_strips_of_a_picture_of_any_shape_are_those_of_the_whole(size: tuple[int, int]) -> None:
    image = noise("RGBA", *size)
    assert torch.equal(to_rgb(image), at_once(image))


@pytest.mark.parametrize("mode", ["RGBA", "I"])
def test_the_picture_itself_is_left_as_it_was(mode: str) -> None:
    image = noise(mode, 5, 7)
    before = image.copy()
    to_rgb(image)
    assert image == before


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "CMYK"])
def test_a_red_picture_is_red_in_any_mode(mode: str) -> None:
    image = Image.new("RGB", (5, 3), "red").convert(mode)
    assert to_rgb(image).shape == (3, 3, 5)
    assert pixel(image) == RED


@pytest.mark.parametrize("mode", ["L", "1", "LA"])
def test_grey_levels_are_repeated(mode: str) -> None:
    assert pixel(Image.new("L", (2, 2), 255).convert(mode)) == WHITE


def test_sixteen_bits_are_scaled_not_clipped() -> None:
    levels = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    image = reopened(Image.fromarray(levels), "PNG")
    assert to_rgb(image)[0].tolist() == [[0, 1, 128, 255]]


@pytest.mark.parametrize(("kind", "level"), [(np.uint8, 10), (np.uint16, 10), (np.uint16, 2570)])
def test_a_grey_level_that_is_transparent_lies_on_white(kind: type[np.unsignedinteger], level: int) -> None:
    levels = np.array([[level, level + 1, 0]], dtype=kind)
    image = reopened(Image.fromarray(levels), "PNG", transparency=level)
    assert pixel(image) == WHITE
    assert to_rgb(image)[0].tolist() == [[255, *to_rgb(reopened(Image.fromarray(levels), "PNG"))[0, 0, 1:].tolist()]]


def test_transparent_pixels_lie_on_white() -> None:
    assert pixel(Image.new("RGBA", (1, 1), (255, 0, 0, 0))) == WHITE
    palette = Image.new("RGB", (1, 1), "red").convert("P")
    assert pixel(reopened(palette, "PNG", transparency=palette.getpixel((0, 0)))) == WHITE


def test_the_exif_orientation_is_honoured() -> None:
    image = Image.new("RGB", (4, 2), "black")
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn 90 degrees clockwise to view
    turned = reopened(image, "PNG", exif=exif)
    assert to_rgb(turned).shape == (3, 4, 2)
    assert pixel(turned, 0, 1) == RED


def test_a_mode_that_pillow_does_not_convert_is_refused() -> None:
    with pytest.raises(ImageError, match="of the mode La"):
        to_rgb(Image.new("LA", (2, 2)).convert("La"))


def test_a_truncated_picture_is_refused() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(buffer, "JPEG")
    with pytest.raises(ImageError, match="damaged or truncated"):
        to_rgb(Image.open(io.BytesIO(buffer.getvalue()[:-400])))


def test_floating_values_are_refused() -> None:
    with pytest.raises(ImageError, match="floating"):
        to_rgb(Image.new("F", (2, 2)))


def test_resizing_agrees_with_pillow_within_one_grey_level() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (37, 53, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    ours = Preprocessing((14, 21)).resize(to_rgb(image)).int()
    theirs = torch.from_numpy(np.array(image.resize((21, 14), Image.Resampling.BICUBIC))).permute(2, 0, 1).int()
    assert (ours - theirs).abs().max() <= 1


def test_pictures_of_the_right_size_are_left_as_they_are() -> None:
    image = to_rgb(Image.fromarray(np.random.default_rng(0).integers(0, 255, (14, 21, 3), dtype=np.uint8)))
    left, halved = Preprocessing((14, 21)).resize(image), Preprocessing((7, 10)).resize(image)
    assert torch.equal(left, image)
    assert left.is_contiguous()
    assert halved.is_contiguous()


def test_what_is_no_tensor_is_not_resized() -> None:
    picture, grey = Image.new("RGB", (4, 2)), torch.zeros((2, 4), dtype=torch.uint8)
    wrong = (picture, "Image"), (torch.rand(3, 2, 4), r"float32 \[3, 2, 4\]"), (grey, r"uint8 \[2, 4\]")
    for image, given in wrong:
        with pytest.raises(TypeError, match=rf"a uint8 tensor \[3, H, W\], which .*to_rgb makes, not a {given}$"):
            Preprocessing((2, 4)).resize(image)  # type: ignore[arg-type]


def test_normalisation_maps_the_range_as_configured() -> None:
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 1, 1)
    half = Preprocessing((1, 1)).normalize(images, torch.float32)
    assert Preprocessing((1, 1)).normalize(images[:0], torch.bfloat16).dtype == torch.bfloat16
    assert half[:, :, 0, 0].tolist() == [[-1.0] * 3, [1.0] * 3]
    raw = Preprocessing((1, 1), mean=(0, 0, 0), std=(1, 1, 1)).normalize(images, torch.bfloat16)
    assert raw.dtype == torch.bfloat16
    assert raw[1].max() == 1.0


def test_what_images_are_normalised_with_is_made_once() -> None:
    """On a GPU to make it is to wait."""
    some = [Preprocessing((1, 1), mean=(mean, 0.5, 0.5)) for mean in (0.125, 0.25, 0.375)]
    images = torch.randint(0, 256, (4, 3, 1, 1), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    before = _remembered.cache_info().misses
    for each in itertools.product(some, repeat=4):
        alone = [one.normalize(image[None], torch.float32) for one, image in zip(each, images, strict=True)]
        assert torch.equal(normalize(images, each, torch.float32), torch.cat(alone))
    assert _remembered.cache_info().misses - before <= len(some)


def test_only_batches_of_bytes_are_normalised() -> None:
    alone, last = torch.zeros((3, 2, 4), dtype=torch.uint8), torch.zeros((1, 2, 4, 3), dtype=torch.uint8)
    wrong = (torch.rand(1, 3, 2, 4), r"float32 \[1, 3, 2, 4\]"), (alone, r"uint8 \[3, 2, 4\]"), (last, "uint8 .*3]")
    for images, given in wrong:
        with pytest.raises(TypeError, match=rf"uint8 \[B, 3, H, W\], values 0 to 255, .* not {given}$"):
            Preprocessing((2, 4)).normalize(images, torch.float32)


@pytest.mark.parametrize(("given", "name"), [("a/picture.png", "str"), (np.zeros((2, 4, 3), np.uint8), "ndarray")])
def test_what_is_no_picture_is_not_converted(given: Any, name: str) -> None:
    with pytest.raises(TypeError, match=rf"PIL\.Image\.open or fromarray makes, not a {name}$"):
        to_rgb(given)


@pytest.mark.parametrize(
    "arguments", [{"size": (0, 4)}, {"size": (4, 4), "std": (1.0, 0.0, 1.0)}, {"size": (4, 4), "interpolation": "x"}]
)
def test_impossible_preprocessing_is_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match=r"size|std|interpolation"):
        Preprocessing(**arguments)  # type: ignore[arg-type]
