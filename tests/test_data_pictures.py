"""Looking a picture over finds out whether it decodes."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pictures
import pytest
import torch
from PIL import Image, features

from fpet.cli import main
from fpet.data.pictures import ImageFiles, LabelledFile, check_pictures
from fpet.errors import DataError

pytestmark = pytest.mark.usefixtures("one_thread")


def decodes(path: Path) -> bool:
    """Whether the whole picture can be read, at its full size."""
    try:
        ImageFiles((path,))[0]
    except DataError:
        return False
    return True


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 20}])
def test_the_quick_look_finds_exactly_the_jpegs_that_do_not_decode(options: dict[str, int], tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    pixels = torch.randint(256, (60, 80, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    Image.fromarray(pixels.numpy()).save(path, **options)  # type: ignore[arg-type]
    whole = path.read_bytes()
    seen = []
    for missing in (0, 1, 2, 3, 10, 30, 300, len(whole) // 2, len(whole) - 2):
        path.write_bytes(whole[: len(whole) - missing])
        checked = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True)
        assert (path in checked.digests) == decodes(path) == (not checked.broken), missing
        seen.append(decodes(path))
    assert (seen[0], seen[-3:]) == (True, [False] * 3)


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG"])
def test_an_animation_is_a_broken_picture(format: str, tmp_path: Path) -> None:
    path = tmp_path / "moving"
    path.write_bytes(pictures.animated(format))
    checked = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True)
    assert checked.broken == ("moving: the image is animated",)
    assert not decodes(path)


def test_a_pipe_is_no_picture_and_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.png"
    os.mkfifo(path)
    assert check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True).broken == ("pipe.png: this is no file",)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("folder", "Is a directory"),
        ("nothing", "No such file or directory"),
        ("text", "no picture format that is read here"),
    ],
)
def test_what_cannot_be_read_is_named_once(name: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no picture")
    with pytest.raises(DataError, match=f"{reason}$") as error:
        ImageFiles((tmp_path / name,))[0]
    assert str(error.value).count(str(tmp_path)) == 1
    assert "Errno" not in str(error.value)


def test_a_film_beside_pictures_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.mov"
    with path.open("wb") as film:
        film.truncate(2**28)
    tracemalloc.start()
    try:
        checked = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert checked.broken == ("a.mov: this is in no picture format that is read here",)


def test_a_picture_of_too_many_pixels_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pillow takes what is large for an attack, and warns of what is half as large."""
    for label in ("a", "b"):
        for i in range(20):
            (tmp_path / label).mkdir(exist_ok=True)
            Image.new("RGB", (30, 30), (i, 0, len(label))).save(tmp_path / label / f"{i}.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 899)
    options = [
        "train",
        "--name",
        "a",
        "--epochs",
        "0",
        "--data",
        str(tmp_path),
        "--output",
        str(tmp_path / "a.safetensors"),
    ]
    assert main(options) == 2  # for having no epochs
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)
    assert main([*options, "--epochs", "1"]) == 2
    said = capsys.readouterr().err
    assert "0.png: it has more than 800 pixels; make it smaller" in said
    assert "Warning" not in said


@pytest.mark.skipif(not features.check("avif"), reason="Pillow without AVIF")
def test_a_damaged_avif_is_a_broken_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.avif"
    path.write_bytes(pictures.damaged_avif())
    (broken,) = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True).broken
    assert broken.startswith("a.avif: the image is damaged or truncated: Failed to decode")


def test_a_variant_that_pillow_does_not_know_is_a_broken_picture(tmp_path: Path) -> None:
    """A DDS file of 4 x 4 pixels in the format ZZZZ, for which Pillow raises NotImplementedError."""
    path = tmp_path / "texture.dds"
    header = struct.pack("<4s7I44x2I4s40x", b"DDS ", 124, 0x1007, 4, 4, 0, 0, 0, 32, 4, b"ZZZZ")
    assert len(header) == 128
    path.write_bytes(header + bytes(64))
    checked = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True)
    assert not checked.digests
    assert "pixel format" in checked.broken[0]
    assert not decodes(path)


@pytest.mark.parametrize(
    ("brand", "kind"), [(b"heic", "HEIC"), (b"heix", "HEIC"), (b"hevc", "HEIC"), (b"mif1", "HEIF"), (b"avif", "AVIF")]
)
def test_what_a_phone_writes_is_named(brand: bytes, kind: str, tmp_path: Path) -> None:
    """Files that end after their brands, so that no reader takes them, whether Pillow has one for AVIF or not."""
    path = tmp_path / "IMG_0001.jpg"
    path.write_bytes(struct.pack(">I4s4sI4s4s", 24, b"ftyp", brand, 0, b"mif1", b"miaf"))
    reason = f"this {kind} file cannot be read here; convert it to JPEG or PNG"
    assert check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True).broken == (f"{path.name}: {reason}",)
    with pytest.raises(DataError, match=f"IMG_0001.jpg: {reason}$"):
        ImageFiles((path,))[0]


@pytest.mark.parametrize("content", [b"", b"ftypheic", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", b"heicheicheicheic"])
def test_what_is_no_picture_is_not_taken_for_a_phones(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.heic"
    path.write_bytes(content)
    checked = check_pictures(tmp_path, [LabelledFile(path, 0)], skip_broken=True)
    assert checked.broken == ("a.heic: this is in no picture format that is read here",)
