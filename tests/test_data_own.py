"""A data set of a program's own pictures trains and is tested as one of files."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pictures
import pytest
import torch
from PIL import Image
from small import small_backbone, small_digits, small_header

from fpet import Dataset, Recipe, dataset_of, evaluate_fitted, fit
from fpet.errors import DataError
from fpet.images import to_rgb
from fpet.training.provenance import check_recordable

pytestmark = pytest.mark.usefixtures("one_thread")

LABELS = ("cat", "dog")


def split_of(*seeds: int) -> Any:
    return [pictures.scene(seed=seed) for seed in seeds], [seed % 2 for seed in seeds]


SPLITS = {"train": split_of(0, 1, 2, 3), "val": split_of(4, 5), "test": split_of(6, 7)}


def tensors(dataset: Dataset) -> list[torch.Tensor]:
    return [split.images[i] for split in (dataset.train, dataset.val, dataset.test) for i in range(len(split))]


def test_pictures_in_any_form_are_one_data_set(tmp_path: Path) -> None:
    expected = dataset_of("pets", LABELS, **SPLITS)
    assert (expected.name, expected.labels, len(expected.sha256)) == ("pets", LABELS, 64)
    assert expected.train.targets.tolist() == [0, 1, 0, 1]
    images = [image for one, _ in SPLITS.values() for image in one]
    assert all(torch.equal(one, to_rgb(image)) for one, image in zip(tensors(expected), images, strict=True))
    for number, image in enumerate(images):
        image.save(tmp_path / f"{number}.png")
    forms: dict[str, Any] = {
        "paths": [tmp_path / f"{number}.png" for number in range(8)],
        "texts": [str(tmp_path / f"{number}.png") for number in range(8)],
        "bytes": [(tmp_path / f"{number}.png").read_bytes() for number in range(8)],
        "arrays": [np.asarray(image) for image in images],
        "a tensor": torch.stack([to_rgb(image) for image in images]),
        "tensors": [to_rgb(image) for image in images],
    }
    for form, given in forms.items():
        parts = {"train": (given[:4], [0, 1, 0, 1]), "val": (given[4:6], [0, 1]), "test": (given[6:], [0, 1])}
        found = dataset_of("pets", list(LABELS), **parts)  # type: ignore[arg-type]
        assert found.sha256 == expected.sha256, form
        assert all(torch.equal(*both) for both in zip(tensors(found), tensors(expected), strict=True)), form


def test_it_can_be_sent_to_another_process() -> None:
    dataset = dataset_of("pets", LABELS, **SPLITS)
    again = pickle.loads(pickle.dumps(dataset))
    assert all(map(torch.equal, tensors(again), tensors(dataset)))


def test_another_picture_target_or_split_is_another_data_set() -> None:
    digests = {
        dataset_of("pets", LABELS, **{**SPLITS, **change}).sha256
        for change in (
            {},
            {"train": split_of(0, 1, 2, 9)},
            {"train": (SPLITS["train"][0], [0, 1, 1, 1])},
            {"val": SPLITS["test"], "test": SPLITS["val"]},
        )
    }
    assert len(digests) == 4


def test_it_is_trained_and_tested_as_the_same_pictures_of_a_folder(tmp_path: Path) -> None:
    digits = small_digits()
    own = dataset_of(
        digits.name,
        digits.labels,
        train=(digits.train.images.pixels, digits.train.targets),  # type: ignore[attr-defined]
        val=(list(map(picture, map(digits.val.images.__getitem__, range(len(digits.val))))), digits.val.targets),
        test=(digits.test.images.pixels, digits.test.targets),  # type: ignore[attr-defined]
    )
    check_recordable(own)
    backbone, recipe, found = small_backbone(), Recipe(epochs=1, batch_size=16, drop_path=0.0), []
    for name, data in (("own", own), ("digits", digits)):
        header, tested = evaluate_fitted(fit(small_header(backbone), backbone, data, recipe, tmp_path / f"{name}.pt"))
        found.append((tested, header.provenance["data"]["sha256"] == data.sha256))
    assert found[0] == found[1]
    assert found[0][1]


def picture(pixels: torch.Tensor) -> Image.Image:
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"val": ([], [])}, "no val images"),
        ({"val": (torch.zeros(0, 3, 4, 4, dtype=torch.uint8), torch.zeros(0, dtype=torch.int64))}, "no val images"),
        ({"test": split_of(6, 1)}, r"test\[1\] is the same picture as train\[1\]"),
        ({"test": split_of(6, 5)}, r"test\[1\] is the same picture as val\[1\]"),
        ({"test": ([*split_of(6)[0], b"no picture"], [0, 1])}, "cannot read image 1: this is in no picture format"),
        ({"test": (["missing.png"], [0])}, "cannot read missing.png: No such file or directory"),
        ({"test": ([None], [0])}, "cannot read image 0: an object of type NoneType is no image"),
        (
            {"test": ([torch.zeros(3, 4, 4)], [0])},
            r"image 0: pixels as a tensor are uint8 \[3, H, W\], not float32 \[3, 4",
        ),
        ({"test": list(zip(*split_of(6, 7), strict=True))}, r"test is a tuple of two, .*; of pairs, tuple\(zip\("),
        ({"labels": "ab"}, "labels are a list of names, not the text 'ab'"),
        ({"test": (split_of(6, 7)[0], [0])}, "the targets of 2 pictures"),
        ({"test": (split_of(6, 7)[0], [0.0, 1.0])}, "the targets of 2 pictures"),
        ({"test": (split_of(6, 7)[0], ["cat", "dog"])}, "^test: "),
        ({"test": (split_of(6, 7)[0], [0, None])}, "^test: "),
        ({"test": (split_of(6, 7)[0], [False, True])}, "^test: the targets of 2 pictures are int64"),
        ({"test": ([io.BytesIO(pictures.png())], [0])}, "cannot read image 0: an open file can be read only once"),
        ({"test": (torch.zeros(2, 3, 0, 4).byte(), [0, 1])}, "pictures as a tensor are uint8"),
        ({"test": (split_of(6, 7)[0], ["a", "b"])}, "^test: targets are the places of labels, from 0, not their names"),
        ({"test": (split_of(6, 7)[0], [0, 2])}, "^test: targets of 2 classes are 0 to 1, not 2"),
        ({"test": (torch.zeros(2, 3, 4, 4), [0, 1])}, "pictures as a tensor are uint8"),
        ({"test": (torch.zeros(2, 4, 4, 3).byte(), [0, 1])}, "pictures as a tensor are uint8"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset_of("pets", **{"labels": LABELS, **SPLITS, **change})


@pytest.mark.parametrize("format", ["PNG", "JPEG"])
def test_a_picture_may_stand_often_in_a_split(format: str, tmp_path: Path) -> None:
    """Also one that Pillow is yet to decode, which two threads must not do at once."""
    pictures.scene(1200, 900).save(tmp_path / "large", format)
    often = ([Image.open(tmp_path / "large")] * 6, [0] * 6)
    assert len(dataset_of("pets", LABELS, **{**SPLITS, "train": often}).train) == 6


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
def test_targets_are_whole_numbers_of_any_type_and_are_copied(kind: type) -> None:
    given = np.array([0, 1], kind)
    dataset = dataset_of("pets", LABELS, **{**SPLITS, "test": (split_of(6, 7)[0], given)})
    given[:] = 1
    assert torch.equal(dataset.test.targets, torch.tensor([0, 1]))


def test_pixels_in_another_shape_are_another_picture() -> None:
    wide, high = torch.zeros(1, 3, 4, 6, dtype=torch.uint8), torch.zeros(1, 3, 6, 4, dtype=torch.uint8)
    assert len(dataset_of("pets", LABELS, train=(wide, [0]), val=(high, [0]), test=split_of(6, 7)).val) == 1
