"""VTAB-1K as it is passed on: all 19 folders, and a clear word for everything that lists can have wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from picture_files import picture, truncate, write_list

from fpet.data import Dataset, Reading, load_dataset
from fpet.data.vtab import VTAB_1K
from fpet.errors import DataError


def tree(root: Path, classes: int) -> Path:
    """A folder in VTAB-1K's layout with one image of each class in each split, the last class first."""
    for name in ("train800", "val200", "test", "train800val200"):
        entries = [(f"images/{name}/{i:06}.jpg", classes - 1 - i) for i in range(classes)]
        write_list(root / f"{name}.txt", root, entries)
    return root


@pytest.fixture
def kitti(tmp_path: Path) -> Path:
    return tree(tmp_path / "kitti", 4)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tree(tmp_path / "own", 3)


def load(root: Path, *, skip_broken: bool = False) -> Dataset:
    return load_dataset(str(root), reading=Reading(skip_broken=skip_broken))


@pytest.mark.parametrize("name", VTAB_1K)
def test_each_of_the_19_is_read(name: str, tmp_path: Path) -> None:
    classes = VTAB_1K[name].classes
    data = load(tree(tmp_path / name, classes))
    assert (data.name, data.labels) == (name, tuple(map(str, range(classes))))
    for split in (data.train, data.val, data.test):
        assert split.targets.tolist() == list(reversed(range(classes)))
    assert data.train.images[0].shape == (3, 7, 9)


def test_the_19_have_the_published_classes() -> None:
    assert len(VTAB_1K) == 19
    assert sum(task.classes for task in VTAB_1K.values()) == 940
    assert VTAB_1K["smallnorb_ele"].classes == 9


def test_the_1000_that_would_leave_none_to_choose_the_epoch_are_not_read(kitti: Path) -> None:
    before = load(kitti)
    (kitti / "train800val200.txt").unlink()
    assert load(kitti).sha256 == before.sha256


def test_a_folder_of_another_name_has_the_classes_of_its_training_list(own: Path) -> None:
    assert load(own).labels == ("0", "1", "2")


def test_labels_may_lie_beside_the_lists(own: Path) -> None:
    before = load(own).sha256
    (own / "labels.txt").write_text("ant\nblack bear\ncow\n")
    data = load(own)
    assert data.labels == ("ant", "black bear", "cow")
    assert data.sha256 != before
    for text, message in (("ant\nbear\n", "2 classes, but there are 3"), ("a\nb\na\n", "two classes 'a'")):
        (own / "labels.txt").write_text(text)
        with pytest.raises(DataError, match=f"labels.txt names {message}"):
            load(own)


def test_spaces_and_empty_lines_in_a_list(own: Path) -> None:
    (own / "images/train800/000000.jpg").rename(own / "images/train800/a picture.jpg")
    text = (own / "train800.txt").read_text().replace("000000.jpg", "a picture.jpg")
    (own / "train800.txt").write_text(f"\n{text}\n\r\n")
    assert load(own).train.targets.tolist() == [2, 1, 0]


def test_a_mark_of_utf8_is_no_part_of_a_path_or_label(own: Path) -> None:
    (own / "labels.txt").write_text("ant\nbear\ncow\n", encoding="utf-8-sig")
    train = own / "train800.txt"
    train.write_text(train.read_text(), encoding="utf-8-sig")
    assert load(own).labels == ("ant", "bear", "cow")


def test_the_digest_is_over_images_and_lists(own: Path) -> None:
    before = load(own).sha256
    lines = (own / "test.txt").read_text().splitlines()
    (own / "test.txt").write_text("\n".join(reversed(lines)))
    assert load(own).sha256 != before


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("000001.jpg 1", "000001.jpg", "line 2: 'images/train800/000001.jpg' is not an image and the number"),
        ("000001.jpg 1", "000001.jpg one", "line 2: .* one' is not an image and the number of its class"),
        ("000001.jpg 1", "000001.jpg -1", "line 2: there is no class -1"),
        ("images/train800/000001", "../000001", r"line 2: \.\./000001.jpg is not in the data's own folder"),
        ("images/train800/000001", "/000001", "line 2: /000001.jpg is not in the data's own folder"),
        ("000001.jpg 1", "000001.jpg 2", "1 of 3 classes have no training image: 1"),
        ("000001.jpg 1", f"000001.jpg {10**23}", f"train800.txt names class {10**23}: there are at most 100000"),
        ("train800/000001", "test/000001", r"test/000001.jpg is in two splits: train800.txt, line 2, and test.txt"),
        ("train800/000001", "train800/./000000", r"000000.jpg is in two classes: train800.txt, line 1, and .*line 2"),
        ("train800/000001", "train800/9", r"1 of 9 pictures .*: images/train800/9.jpg \(train800.txt, line 2\): there"),
    ],
)
def test_a_wrong_line_is_refused(old: str, new: str, message: str, own: Path) -> None:
    change(own / "train800.txt", old, new)
    with pytest.raises(DataError, match=message):
        load(own)


def test_a_label_that_is_not_trained_is_refused(own: Path) -> None:
    change(own / "val200.txt", "000000.jpg 2", "000000.jpg 3")
    with pytest.raises(
        DataError, match=r"class 3 \(val200.txt, line 1\) is out of range: there are 3 classes in its tr"
    ):
        load(own)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (5, r"class 4 \(train800.txt, line 1\) is out of range: there are 4 classes"),
        (3, "has 4 classes as published, but its lists name 3"),
    ],
)
def test_a_known_name_with_other_classes_is_refused(classes: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(tree(tmp_path / "kitti", classes))


def test_sun397_may_lack_training_images_of_a_class_as_published(tmp_path: Path) -> None:
    for name, refused in (("sun397", False), ("cifar", True)):
        root = tree(tmp_path / name, VTAB_1K[name].classes)
        change(root / "train800.txt", "000000.jpg " + str(VTAB_1K[name].classes - 1), "000000.jpg 0")
        if refused:
            with pytest.raises(DataError, match="1 of 100 classes have no training image: 99"):
                load(root)
        else:
            assert len(load(root).labels) == 397


@pytest.mark.parametrize("name", ["train800.txt", "val200.txt", "test.txt"])
def test_a_missing_or_empty_list_is_refused(name: str, own: Path) -> None:
    (own / name).write_text("\n")
    with pytest.raises(DataError, match=f"{name} names no images"):
        load(own)
    (own / name).write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=f"{name} is not text in UTF-8"):
        load(own)
    (own / name).unlink()
    with pytest.raises(DataError, match=f"{name}: cannot be read: No such file"):
        load(own)


def test_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names one class: a classification needs two"):
        load(tree(tmp_path / "own", 1))


def test_broken_images_are_left_out_if_asked(own: Path) -> None:
    (own / "images/val200/000000.jpg").unlink()
    truncate(own / "images/test/000002.jpg")
    message = (
        r"2 of 9 pictures cannot be read .*val200/000000.jpg \(val200.txt, line 1\): there is no such file; .*test"
    )
    with pytest.raises(DataError, match=message):
        load(own)
    data = load(own, skip_broken=True)
    assert [split.targets.tolist() for split in (data.train, data.val, data.test)] == [[2, 1, 0], [1, 0], [2, 1]]
    assert [line.split()[0] for line in data.skipped] == ["images/val200/000000.jpg", "images/test/000002.jpg"]


def test_nothing_is_left_out_silently(own: Path) -> None:
    (own / "images/train800/000001.jpg").unlink()
    with pytest.raises(DataError, match="1 of 3 classes have no training image: 1"):
        load(own, skip_broken=True)
    for path in own.glob("images/test/*"):
        path.unlink()
    (own / "images/train800/000001.jpg").write_bytes((own / "images/train800/000000.jpg").read_bytes())
    with pytest.raises(DataError, match="no test images"):
        load(own, skip_broken=True)


def test_copies_of_a_picture_in_two_splits_are_said_with_their_number(
    own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i, path in enumerate(sorted((own / "images").glob("*/*.jpg"))):
        picture(path, i)
    load(own)
    assert not caplog.records
    trained = own / "images" / "train800"
    for name, original in (("val200", "000000"), ("test", "000000"), ("test", "000002")):
        shutil.copy(trained / f"{original}.jpg", own / "images" / name / f"{original}.jpg")
    with (own / "test.txt").open("a") as file:  # one that is named twice is one
        file.write("images/test/000002.jpg 0\n")
    load(own)
    (said,) = caplog.messages
    assert said.startswith(f"{own}: 3 pictures in two splits, byte by byte, so that its accuracy is not of new ")
    assert "images/train800/000002.jpg and images/test/000002.jpg" in said


@pytest.mark.parametrize("option", [{"shots": 4}, {"shots_seed": 1}, {"split_seed": 0}])
def test_options_of_other_folders_are_refused(option: dict[str, int], own: Path) -> None:
    name = next(iter(option))
    with pytest.raises(DataError, match=f"^{name} does not apply to .*own, whose lists say its splits"):
        load_dataset(str(own), reading=Reading(**option))
