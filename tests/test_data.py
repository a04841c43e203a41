"""Data sets: the right images in the right split, and a clear word when they cannot be had."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from picture_files import everything
from PIL import Image

from fpet.data import Dataset, Reading, load_dataset
from fpet.data.debian import unpack_package
from fpet.data.fashion_mnist import SHA256, read_idx
from fpet.data.sample import stratified_order
from fpet.data.split import ImageTensor
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


@pytest.mark.parametrize("source", ["fashion-mnist", "digits"])
def test_a_source_has_balanced_disjoint_splits(source: str) -> None:
    data = real(source)
    assert len(data.train) == 800
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


def test_another_seed_gives_another_order() -> None:
    targets = torch.arange(100) % 3
    first, again, other = (stratified_order(targets, seed).tolist() for seed in (1, 1, 2))
    assert first == again != other
    assert stratified_order(targets).tolist() == stratified_order(targets, 0).tolist()


def test_every_beginning_of_a_stratified_order_is_balanced() -> None:
    targets = torch.tensor([0] * 600 + [1] * 300 + [2] * 100)
    order = stratified_order(targets)
    assert order.sort().values.tolist() == list(range(1000))
    for count in (10, 137, 500):
        shares = targets[order[:count]].bincount(minlength=3) - count * torch.tensor([0.6, 0.3, 0.1])
        assert shares.abs().max() <= 1.01
    assert order[:50].tolist() != sorted(order[:50].tolist())


def test_grey_pixels_equal_the_decoded_grey_picture(tmp_path: Path) -> None:
    pixels = torch.randint(256, (1, 28, 28), dtype=torch.uint8)
    Image.fromarray(pixels[0].numpy()).save(tmp_path / "grey.png")
    preprocessing = Preprocessing(size=(112, 112))
    with Image.open(tmp_path / "grey.png") as image:
        decoded = preprocessing.resize(to_rgb(image))
    assert torch.equal(preprocessing.resize(ImageTensor(pixels)[0]), decoded)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(DataError, match="no data 'mnist': neither a source"):
        load_dataset("mnist")


@pytest.mark.parametrize("option", [{"shots": 4}, {"shots_seed": 0}, {"split_seed": 1}, {"skip_broken": True}])
def test_a_named_source_takes_no_options_of_folders(option: dict[str, int]) -> None:
    name = next(iter(option))
    with pytest.raises(DataError, match=f"^{name} does not apply to digits, which is no folder"):
        load_dataset("digits", reading=Reading(**option))  # type: ignore[arg-type]
