"""Folders in a class folder, links among them, and a picture that lies under two classes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from picture_files import classes, picture, truncate

from fpet.data import Dataset, Reading, Split, load_dataset
from fpet.data.pictures import ImageFiles
from fpet.errors import DataError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return classes(tmp_path / "pets", {"cat": 6, "dog": 5})


def load(root: Path, seed: int | None = None, *, skip_broken: bool = False, test_alone: bool = False) -> Dataset:
    reading = Reading(split_seed=seed, skip_broken=skip_broken)
    return load_dataset(str(root), reading=reading, test_alone=test_alone)


def paths(root: Path, *splits: Split) -> list[str]:
    """Where the pictures lie, in order."""
    files = [split.images for split in splits]
    assert all(isinstance(images, ImageFiles) for images in files)
    return [path.relative_to(root).as_posix() for images in files for path in images.paths]  # type: ignore[attr-defined]


def of(data: Dataset, root: Path) -> list[str]:
    """All pictures of a data set, sorted."""
    return sorted(paths(root, data.train, data.val, data.test))


def test_a_flat_folder_is_split_as_before_folders_in_it_were_read(tmp_path: Path) -> None:
    """The constants are of that time; the pictures are written byte by byte, so that no version of Pillow counts."""
    for target, (label, number) in enumerate({"Zebra": 7, "ant": 12, "bee": 5}.items()):
        (tmp_path / label).mkdir()
        for i in range(number):
            (tmp_path / label / f"{'Ab'[i % 2]}{i}.ppm").write_bytes(b"P6 1 1 255\n" + bytes((target, i, 9)))
    data = load(tmp_path, 3)
    assert data.sha256 == "d72bd199a4d29ddff911549c189f426f1f6ba5809504eedf3f2694aaa8e43fde"
    assert paths(tmp_path, data.val) == ["Zebra/b3.ppm", "ant/A0.ppm", "bee/b3.ppm"]
    assert paths(tmp_path, data.test) == ["Zebra/A6.ppm", "ant/A6.ppm", "ant/A4.ppm", "bee/A2.ppm"]
    train = ["b1", "b5", "A0", "A4", "A2"]
    assert paths(tmp_path, data.train)[:6] == [*(f"Zebra/{name}.ppm" for name in train), "ant/A10.ppm"]


def test_folders_in_a_class_folder_are_read_however_deep(root: Path) -> None:
    picture(root / "cat" / "2024" / "summer" / "a.jpg", 100)
    picture(root / "cat" / "2024" / "b.jpg", 110)
    picture(root / "dog" / "00" / "00.png", 120)
    data = load(root)
    assert len(of(data, root)) == 14
    assert {"cat/2024/b.jpg", "cat/2024/summer/a.jpg", "dog/00/00.png"} < set(of(data, root))
    for split in (data.train, data.val, data.test):
        assert [data.labels[target] for target in split.targets] == [path.split("/")[0] for path in paths(root, split)]
    before = data.sha256
    picture(root / "cat" / "2024" / "summer" / "a.jpg", 130)
    assert load(root).sha256 != before


def test_pictures_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for i, name in enumerate(("z.png", "b/z.png", "b/a/c.png", "a.png", "b.png", "c/a.png")):
        picture(tmp_path / "test" / "cat" / name, i)
    picture(tmp_path / "test" / "dog" / "a.png", 9)
    cats = [f"test/cat/{name}" for name in ("a.png", "b/a/c.png", "b/z.png", "b.png", "c/a.png", "z.png")]
    assert paths(tmp_path, load(tmp_path, test_alone=True).test) == [*cats, "test/dog/a.png"]


def test_the_folders_of_splits_are_read_as_deep(tmp_path: Path) -> None:
    for i, split in enumerate(("train", "val", "test")):
        for j, name in enumerate(("cat/a.png", "cat/more/and/b.png", "dog/x/a.png")):
            picture(tmp_path / split / name, 10 * i + j)
    data = load(tmp_path)
    assert [split.targets.tolist() for split in (data.train, data.val, data.test)] == [[0, 0, 1]] * 3


def test_hidden_names_and_clutter_are_skipped_at_any_depth(root: Path) -> None:
    picture(root / "cat" / "more" / "a.png", 99)
    before = load(root).sha256
    for name in (".thumbnails/a.png", "more/.a.png", "more/__MACOSX/a.png"):
        picture(root / "cat" / name, 98)
    (root / "cat" / "more" / "Thumbs.db").write_text("no picture")
    (root / "cat" / "empty" / "of" / "all").mkdir(parents=True)
    assert load(root).sha256 == before


def test_a_broken_picture_in_a_folder_of_a_class_is_named(root: Path) -> None:
    truncate(picture(root / "cat" / "2024" / "a.png", 99))
    with pytest.raises(DataError, match=r"1 of 12 pictures cannot be read .*: cat/2024/a.png: "):
        load(root)
    assert len(of(load(root, skip_broken=True), root)) == 11


@pytest.mark.parametrize("target", [".", "..", "../..", "../../..", "more"])
def test_a_link_to_a_folder_that_it_lies_in_ends(target: str, root: Path) -> None:
    picture(root / "cat" / "more" / "a.png", 99)
    before = of(load(root), root)
    (root / "cat" / "more" / "round").symlink_to((root / "cat" / target).resolve())
    assert of(load(root), root) == before


def test_links_to_each_other_end(root: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        picture(root / "cat" / name / "a.png", ord(name[0]))
        (root / "cat" / name / "link").symlink_to(f"../{other}")
    assert of(load(root), root)[6:8] == ["cat/one/a.png", "cat/one/link/a.png"]
    assert len(of(load(root), root)) == 13


def test_links_to_folders_and_files_elsewhere_are_followed(root: Path, tmp_path: Path) -> None:
    picture(tmp_path / "disk" / "summer" / "a.png", 100)
    picture(tmp_path / "disk" / "b.png", 110)
    (root / "cat" / "album").symlink_to(tmp_path / "disk" / "summer")
    (root / "cat" / "b.png").symlink_to(tmp_path / "disk" / "b.png")
    shutil.move(root / "dog", tmp_path / "disk" / "dogs")
    (root / "dog").symlink_to(tmp_path / "disk" / "dogs")
    (root / "dog" / "up").symlink_to(root)
    found = of(load(root), root)
    assert {"cat/album/a.png", "cat/b.png", "dog/00.png"} < set(found)
    assert len(found) == 13


def copy(root: Path, source: str, target: str) -> None:
    (root / target).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(root / source, root / target)


@pytest.mark.parametrize("skip_broken", [False, True])
@pytest.mark.parametrize("name", ["dog/copy.png", "dog/more/copy.png"])
def test_a_picture_under_two_classes_is_refused(name: str, skip_broken: bool, root: Path) -> None:
    copy(root, "cat/03.png", name)
    message = f"pets: the same picture is under two classes; delete one of each two: cat/03.png as 'cat' and {name} as"
    with pytest.raises(DataError, match=f"{message} 'dog'$"):
        load(root, skip_broken=skip_broken)
    (root / "cat" / "03.png").unlink()
    load(root)


def test_of_many_pictures_under_two_classes_ten_are_named(tmp_path: Path) -> None:
    classes(tmp_path, {"cat": 12, "dog": 3})
    for i in range(12):
        copy(tmp_path, f"cat/{i:02}.png", f"dog/copy{i:02}.png")
    with pytest.raises(DataError, match=r"(; cat/0\d.png as 'cat' and dog/copy0\d.png as 'dog'){9}; and 2 more$"):
        load(tmp_path)


@pytest.mark.parametrize("splits", [("train", "test"), ("train", "val", "test")])
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_picture_under_two_classes_of_a_split_is_refused(split: str, splits: tuple[str, ...], tmp_path: Path) -> None:
    for i, name in enumerate(splits):
        classes(tmp_path / name, {"cat": 4, "dog": 4}, first=20 * i)
    copy(tmp_path, f"{split}/cat/00.png", f"{split}/dog/copy.png")
    with pytest.raises(DataError, match=f"{split}/cat/00.png as 'cat' and {split}/dog/copy.png as 'dog'$"):
        load(tmp_path, skip_broken=True)


def test_a_picture_under_two_classes_of_a_test_alone_is_refused(tmp_path: Path) -> None:
    classes(tmp_path / "test", {"cat": 2, "dog": 2})
    copy(tmp_path, "test/dog/00.png", "test/cat/copy.png")
    with pytest.raises(DataError, match=r"test/cat/copy.png as 'cat' and test/dog/00.png as 'dog'$"):
        load(tmp_path, test_alone=True)


def test_copies_in_one_class_still_stay_together(root: Path) -> None:
    copy(root, "cat/03.png", "cat/more/copy.png")
    data = load(root)
    both = {"cat/03.png", "cat/more/copy.png"}
    assert sorted(len(both & set(paths(root, split))) for split in (data.train, data.val, data.test)) == [0, 0, 2]


def test_a_name_that_is_no_utf_8_is_a_name(root: Path) -> None:
    before = load(root).sha256
    picture(root / "cat" / "a.png", 99).rename(root / "cat" / os.fsdecode(b"\xe9t\xe9.png"))
    data = load(root)
    assert data.sha256 != before
    assert len(of(data, root)) == 12
