"""Few-shot lists as they are published: which images train, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from picture_files import write_list

from fpet.data import Dataset, Reading, load_dataset
from fpet.data.few_shot import FEW_SHOT
from fpet.errors import DataError

SHOTS, SEEDS = (1, 2, 4, 8, 16), (0, 1, 2)


def tree(
    root: Path, classes: int, lists: str = "annotations", images: str = "images", shots: tuple[int, ...] = (1,)
) -> Path:
    """A folder in the published layout; training images are numbered by shot and seed."""
    for count in shots:
        for seed in SEEDS:
            entries = [(f"{c}/{count}_{seed}_{i}.jpg", c) for c in range(classes) for i in range(count)]
            write_list(root / lists / f"train_meta.list.num_shot_{count}.seed_{seed}", root / images, entries)
    for name in ("val", "test"):
        write_list(root / lists / f"{name}_meta.list", root / images, [(f"{c}/{name}.jpg", c) for c in range(classes)])
    return root


def load(root: Path, shots: int | None = 1, seed: int | None = None, *, skip_broken: bool = False) -> Dataset:
    return load_dataset(str(root), reading=Reading(shots=shots, shots_seed=seed, skip_broken=skip_broken))


@pytest.mark.parametrize("name", FEW_SHOT)
def test_each_of_the_five_is_read(name: str, tmp_path: Path) -> None:
    data = load(tree(tmp_path / name, FEW_SHOT[name]), seed=1)
    assert (data.name, len(data.labels)) == (name, FEW_SHOT[name])
    assert data.train.targets.tolist() == data.test.targets.tolist() == list(range(FEW_SHOT[name]))


def test_the_list_of_the_shots_and_the_seed_is_read(tmp_path: Path) -> None:
    root = tree(tmp_path / "own", 2, shots=SHOTS)
    digests = set()
    for shots in SHOTS:
        for seed in SEEDS:
            data = load(root, shots, seed)
            assert data.train.targets.tolist() == [0] * shots + [1] * shots
            assert (len(data.val), len(data.test)) == (2, 2)
            assert data.choices == {"shots": shots, "shots_seed": seed}
            digests.add(data.sha256)
    assert len(digests) == len(SHOTS) * len(SEEDS)
    assert load(root, 4).sha256 == load(root, 4, 0).sha256


@pytest.mark.parametrize("lists", [".", "annotations"])
@pytest.mark.parametrize("images", [".", "images"])
def test_lists_and_images_may_lie_in_either_place(lists: str, images: str, tmp_path: Path) -> None:
    data = load(tree(tmp_path / "own", 2, lists, images))
    assert data.test.images[1].shape == (3, 7, 9)


def test_an_image_may_be_listed_twice_in_a_split_as_in_the_published_pets(tmp_path: Path) -> None:
    root = tree(tmp_path / "own", 2)
    path = root / "annotations/train_meta.list.num_shot_1.seed_0"
    path.write_text("".join(line * 2 for line in path.read_text().splitlines(keepends=True)))
    assert load(root).train.targets.tolist() == [0, 0, 1, 1]


def test_a_missing_image_is_named_with_its_line(tmp_path: Path) -> None:
    root = tree(tmp_path / "own", 2)
    (root / "images/1/test.jpg").unlink()
    with pytest.raises(DataError, match=r"images/1/test.jpg \(test_meta.list, line 2\): there is no such file"):
        load(root)
    assert load(root, skip_broken=True).test.targets.tolist() == [0]


def test_shots_must_be_said(tmp_path: Path) -> None:
    root = tree(tmp_path / "own", 2, shots=(1, 16))
    known = "annotations has lists with shots = 1, 16 and shots_seed = 0, 1, 2: "
    for shots, seed, asked in ((None, None, "say shots"), (3, None, "not of 3 shots and seed 0"), (1, 7, "not of 1")):
        with pytest.raises(DataError, match=known + asked):
            load(root, shots, seed)


def test_other_classes_than_published_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 37 classes as published, but its lists name 36"):
        load(tree(tmp_path / "oxford-pets", 36))


def test_a_split_seed_is_refused(tmp_path: Path) -> None:
    root = tree(tmp_path / "own", 2)
    with pytest.raises(DataError, match=r"split_seed does not apply to .*own, whose lists say its splits"):
        load_dataset(str(root), reading=Reading(shots=1, split_seed=3))
