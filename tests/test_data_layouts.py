"""Pictures as others lay them out: what validation is called, or where there is none, and what lies about."""

from __future__ import annotations

from pathlib import Path

import pytest
from picture_files import classes, everything, picture

from fpet.data import Dataset, Reading, load_dataset
from fpet.errors import DataError

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def halves(tmp_path: Path) -> Path:
    """A folder without validation."""
    classes(tmp_path / "train", {"ant": 20, "bee": 5})
    classes(tmp_path / "test", {"ant": 3, "bee": 3}, first=100)
    return tmp_path


def load(root: Path, seed: int | None = None) -> Dataset:
    return load_dataset(str(root), reading=Reading(split_seed=seed))


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_validation_has_several_names(name: str, halves: Path) -> None:
    classes(halves / name, {"ant": 2, "bee": 1}, first=200)
    data = load(halves)
    assert [len(split) for split in (data.train, data.val, data.test)] == [25, 3, 6]
    assert not data.choices
    with pytest.raises(DataError, match="split_seed does not apply"):
        load(halves, 1)
    picture(halves / "val" / "ant" / "more.png", 250)
    if name != "val":
        with pytest.raises(DataError, match=f"has val/ and {name}/: either may be the validation"):
            load(halves)


@pytest.mark.parametrize("name", ["Val", "dev", "Validation"])
def test_validation_of_a_name_that_is_not_read_is_refused(name: str, halves: Path) -> None:
    classes(halves / name, {"ant": 2, "bee": 1}, first=200)
    with pytest.raises(DataError, match=f"{name}/ seems to be the validation, which is called val, valid, validation"):
        load(halves)


def test_validation_that_is_not_there_is_split_from_training(halves: Path) -> None:
    default, same, other = load(halves), load(halves, 0), load(halves, 1)
    shares = [split.targets.bincount().tolist() for split in (default.train, default.val, default.test)]
    assert shares == [[18, 4], [2, 1], [3, 3]]
    assert everything(default.val) == everything(same.val)
    assert everything(default.test) == everything(other.test)
    assert set(everything(default.val)) != set(everything(other.val))
    assert [data.choices for data in (default, other)] == [{"split_seed": 0}, {"split_seed": 1}]
    assert len({*everything(default.train), *everything(default.val), *everything(default.test)}) == 31


def test_a_class_with_one_picture_cannot_be_split(halves: Path) -> None:
    classes(halves / "train", {"cow": 1}, first=200)
    with pytest.raises(DataError, match="cow has 1 picture: one each for train, val needs 2"):
        load(halves)


def test_of_many_classes_ten_are_named(halves: Path) -> None:
    classes(halves / "train", {f"a{i:02}": 2 for i in range(20)}, first=150)
    picture(halves / "test" / "fish" / "a.png", 5)
    with pytest.raises(
        DataError,
        match=r"fish is not a class folder: the classes are a00, (a0\d, ){9}and 12 more; move what is none elsewhere$",
    ):
        load(halves)


@pytest.mark.parametrize("name", ["__MACOSX", "__macosx", "@eaDir"])
def test_what_an_archiver_or_indexer_leaves_is_no_class_and_no_part_of_one(name: str, tmp_path: Path) -> None:
    classes(tmp_path, {"ant": 3, "bee": 3})
    before = load(tmp_path)
    (tmp_path / name / "ant").mkdir(parents=True)
    (tmp_path / name / "ant" / "._00.png").write_bytes(b"a resource fork")
    picture(tmp_path / "ant" / name / "00.png" / "small.jpg", 99)
    assert load(tmp_path).labels == before.labels == ("ant", "bee")
    assert load(tmp_path).sha256 == before.sha256


def test_what_an_archiver_leaves_is_no_split(halves: Path) -> None:
    (halves / "__MACOSX" / "train").mkdir(parents=True)
    (halves / "test" / "__MACOSX").mkdir()
    assert load(halves).labels == ("ant", "bee")


@pytest.mark.parametrize(
    "names",
    [
        ("Training", "Testing"),
        ("Train", "Test", "Valid"),
        ("TRAIN", "test", "other"),
        ("train", "dev"),
        ("Train", "Eval"),
    ],
)
def test_splits_by_other_names_are_not_taken_for_classes(names: tuple[str, ...], tmp_path: Path) -> None:
    for i, name in enumerate(names):
        classes(tmp_path / name, {"ant": 3, "bee": 3}, first=10 * i)
    with pytest.raises(DataError, match=r"are called as splits are, not classes; rename them train/, val/ and test/"):
        load(tmp_path)


def test_what_windows_and_a_mac_leave_about_is_no_picture(tmp_path: Path) -> None:
    classes(tmp_path, {"ant": 3, "bee": 3})
    before = load(tmp_path).sha256
    for name in ("Thumbs.db", "desktop.ini", "ant/Thumbs.db", "bee/Desktop.ini", "Icon\r", "ant/Icon\r"):
        (tmp_path / name).write_text("no picture")
    assert load(tmp_path).sha256 == before


@pytest.mark.parametrize("name", ["be\te", "be\ne", "be\udcffe"])
def test_a_class_whose_name_cannot_be_printed_is_refused_by_it(name: str, tmp_path: Path) -> None:
    classes(tmp_path, {"ant": 3, name: 3})
    with pytest.raises(DataError) as error:
        load(tmp_path)
    assert f"the class folder {name!r} has a control character in its name" in str(error.value)
    str(error.value).encode()


def test_classes_that_look_the_same_are_refused(tmp_path: Path) -> None:
    """As a Mac and another system write one name."""
    names = ["caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"]
    for i, name in enumerate(names):
        classes(tmp_path, {name: 3}, first=10 * i)
    with pytest.raises(DataError, match=r"the class folders 'cafe\\u0301' and 'caf\\xe9' look the same"):
        load(tmp_path)


def test_an_accent_written_apart_is_the_same_class(tmp_path: Path) -> None:
    """As where a Mac wrote one of the folders."""
    whole, apart = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
    classes(tmp_path / "train", {apart: 20, "bee": 20})
    classes(tmp_path / "test", {whole: 3, "bee": 3}, first=100)
    data = load(tmp_path)
    assert data.labels == ("bee", whole)
    assert data.test.targets.tolist() == [0] * 3 + [1] * 3


def test_all_that_lies_beside_the_class_folders_is_named(tmp_path: Path) -> None:
    root = classes(tmp_path / "garden", {"ant": 20, "bee": 10})
    for name in ("README.md", "labels.csv"):
        (root / name).write_text("about it")
    with pytest.raises(
        DataError, match=r"README\.md, \S+labels\.csv are not class folders: the classes are ant, bee; move what"
    ):
        load(root)
