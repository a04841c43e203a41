"""A user's own folder of pictures: how it is split, what is refused, what may be left out, and a task from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from picture_files import classes, everything, picture, truncate
from PIL import Image
from small import small_backbone

from fpet.backbone import save_backbone
from fpet.cli import main
from fpet.data import Dataset, Reading, load_dataset
from fpet.errors import DataError
from fpet.images import to_rgb
from fpet.preprocess import Preprocessing
from fpet.task import Task

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    for value, split in enumerate(("train", "val", "test")):  # no two pictures alike
        for i, label in enumerate(("dog", "cat")):
            picture(root / split / label / "a.png", 10 + i + 50 * value)
            picture(root / split / label / "b.jpg", 30 + 10 * i + 50 * value, (30, 40))
    return root


@pytest.fixture
def unsplit(tmp_path: Path) -> Path:
    return classes(tmp_path / "vehicles", {"bus": 20, "car": 40, "train": 10})


MAY_BE_TRAINED_ON = (
    "fpet: the files in {} are not those that mine was trained on, and they are split at random: it may have been "
    "trained on some of those that are to judge it now\n"
)


def load(root: Path, seed: int | None = None, *, skip_broken: bool = False) -> Dataset:
    return load_dataset(str(root), reading=Reading(split_seed=seed, skip_broken=skip_broken))


def test_a_folder_of_pictures(folder: Path) -> None:
    (folder / "train" / "cat" / ".hidden").write_text("not a picture")
    data = load(folder)
    assert (data.name, data.labels) == ("pets", ("cat", "dog"))
    assert data.train.targets.tolist() == [0, 0, 1, 1]
    assert data.train.images[3].shape == (3, 40, 30)
    before = data.sha256
    picture(folder / "test" / "dog" / "a.png", 99)
    assert load(folder).sha256 != before


def test_a_batch_is_resized_as_the_service_resizes(folder: Path) -> None:
    data = load(folder)
    preprocessing = Preprocessing(size=(16, 12))
    batches = list(data.test.batches(preprocessing, 3))
    assert [images.shape for images, _ in batches] == [(3, 3, 16, 12), (1, 3, 16, 12)]
    whole = data.test.resized(preprocessing)
    assert torch.equal(torch.cat([images for images, _ in batches]), whole.images)
    assert torch.equal(torch.cat([targets for _, targets in batches]), whole.targets)
    with Image.open(folder / "test" / "cat" / "b.jpg") as image:
        assert torch.equal(whole.images[1], preprocessing.resize(to_rgb(image)))


def test_one_folder_is_split_70_10_20_in_each_class(unsplit: Path) -> None:
    data = load(unsplit)
    assert data.labels == ("bus", "car", "train")
    shares = [split.targets.bincount().tolist() for split in (data.train, data.val, data.test)]
    assert shares == [[14, 28, 7], [2, 4, 1], [4, 8, 2]]
    train, val, test = (set(everything(split)) for split in (data.train, data.val, data.test))
    assert len(train | val | test) == 70


def test_the_split_depends_on_the_seed_alone(unsplit: Path) -> None:
    default, same, other = load(unsplit), load(unsplit, 0), load(unsplit, 1)
    assert everything(default.test) == everything(same.test)
    assert set(everything(default.test)) != set(everything(other.test))
    assert default.sha256 == other.sha256
    assert [data.choices for data in (default, other)] == [{"split_seed": 0}, {"split_seed": 1}]
    with pytest.raises(DataError, match="split_seed = -1 is not between 0 and"):
        load(unsplit, -1)


def test_each_split_has_an_image_of_a_class_of_three(tmp_path: Path) -> None:
    data = load(classes(tmp_path, {"ant": 3, "bee": 4}))
    shares = [split.targets.bincount().tolist() for split in (data.train, data.val, data.test)]
    assert shares == [[1, 2], [1, 1], [1, 1]]
    (tmp_path / "ant" / "00.png").unlink()
    with pytest.raises(DataError, match="ant has 2 pictures: one each for train, val, test needs 3"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("notes.png", "notes.png is not a class folder: the classes are bus, car, train"),
        ("boat/.hidden.png", "boat has 0 pictures: one each for"),
    ],
)
def test_what_has_no_place_in_one_folder_is_refused(path: str, message: str, unsplit: Path) -> None:
    picture(unsplit / path, 5)
    with pytest.raises(DataError, match=message):
        load(unsplit)


@pytest.mark.parametrize("damage", ["truncated", "text", "gone"])
@pytest.mark.parametrize("name", ["train/cat/a.png", "val/dog/a.png", "test/dog/b.jpg"])
def test_a_broken_picture_of_any_split_is_named_at_once(damage: str, name: str, folder: Path) -> None:
    if damage == "truncated":
        truncate(folder / name)
    elif damage == "text":
        (folder / name).write_text("no picture at all")
    else:
        (folder / name).unlink()
        (folder / name).symlink_to("nowhere")
    leaves = r"\(--skip-broken, in Python and in plans skip_broken, leaves them out; "
    what_to_do = leaves + r"what is no image may also be moved elsewhere\)"
    with pytest.raises(DataError, match=rf"1 of 12 pictures cannot be read {what_to_do}: {name}: "):
        load(folder)
    left = load(folder, skip_broken=True)
    assert [len(split) for split in (left.train, left.val, left.test)].count(3) == 1
    assert [line.split(":")[0] for line in left.skipped] == [name]
    (folder / name).unlink()
    assert load(folder).sha256 == left.sha256


def test_ten_broken_pictures_are_named_and_all_are_counted(unsplit: Path) -> None:
    for i in range(13):
        truncate(unsplit / "car" / f"{i:02}.png")
    with pytest.raises(DataError, match=r"13 of 70 pictures cannot .*car/09.png: [^;]*; and 3 more$"):
        load(unsplit)


def test_a_split_is_made_of_what_is_left(unsplit: Path) -> None:
    for i in range(7):
        truncate(unsplit / "train" / f"{i:02}.png")
    data = load(unsplit, skip_broken=True)
    assert [int((split.targets == 2).sum()) for split in (data.train, data.val, data.test)] == [1, 1, 1]
    truncate(unsplit / "train" / "07.png")
    with pytest.raises(DataError, match="train has 2 pictures: one each for"):
        load(unsplit, skip_broken=True)


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        ("test", "pets has no test/: rename the validation to test/, and 10 % of train/ validate"),
        ("[tv][ea][sl]*", r"pets has no test/: a data folder to train on has train/ and test/, and may have val/ \(w"),
        ("train", "pets has no train/: a data folder to train on has"),
        ("train/dog", "1 class folder, cat/; should the classes lie below, give .*/cat: a classification needs two"),
        ("val/*/*", "val holds no images"),
        ("train/dog/*", "1 of 2 classes have no training image: dog"),
    ],
)
def test_an_incomplete_folder_is_refused(folder: Path, remove: str, message: str) -> None:
    for path in sorted([*folder.glob(remove), *folder.glob(f"{remove}/**/*")], reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=message):
        load(folder)


def test_data_without_a_name_are_not_those_of_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert load_dataset(".").labels == ("cat", "dog")
    with pytest.raises(DataError, match=r"the name of the data is empty; say \. for this folder"):
        load_dataset("")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no train/ and no test/: .*or it has one folder a class"):
        load(tmp_path)


def test_a_class_that_was_not_trained_is_refused(folder: Path) -> None:
    picture(folder / "test" / "fish" / "a.png", 5)
    with pytest.raises(DataError, match=r"test/fish is not a class folder: the classes are cat, dog"):
        load(folder)


def test_a_path_that_is_no_text_is_a_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.rename(folder.with_name("digits"))
    monkeypatch.chdir(folder.parent)
    assert load_dataset(Path("digits")).labels == ("cat", "dog")


def test_a_folder_that_would_not_be_read_is_refused(folder: Path) -> None:
    for data in (str(folder), "digits"):
        with pytest.raises(DataError, match=r"a folder beside|nothing is read"):
            load_dataset(data, folder=folder)


@pytest.mark.parametrize("option", [{"shots": 4}, {"shots_seed": 1}, {"split_seed": 0}])
def test_options_that_a_split_folder_does_not_have_are_refused(option: dict[str, int], folder: Path) -> None:
    name = next(iter(option))
    with pytest.raises(DataError, match=f"^{name} does not apply to .*pets, which is split into train, val, test"):
        load_dataset(str(folder), reading=Reading(**option))  # type: ignore[arg-type]


def test_shots_of_an_unsplit_folder_are_refused(unsplit: Path) -> None:
    with pytest.raises(DataError, match=r"shots does not apply to .*vehicles, which has no lists of shots"):
        load_dataset(str(unsplit), reading=Reading(shots=4))


def test_a_task_from_one_folder(unsplit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truncate(unsplit / "car" / "03.png")
    save_backbone(tmp_path / "small.safetensors", small_backbone())
    output = tmp_path / "mine.safetensors"
    backbone = ["--backbone", str(tmp_path / "small.safetensors")]
    train = ["train", "--name", "mine", "--output", str(output), "--data", str(unsplit), "--split-seed", "3", *backbone]
    train += ["--epochs", "1", "--batch-size", "16", "--reducer-arguments", "block=0"]
    assert main(train) == 2
    assert "1 of 70 pictures cannot be read" in capsys.readouterr().err
    assert not output.exists()
    assert main([*train, "--skip-broken"]) == 0
    assert "fpet: left out car/03.png: " in capsys.readouterr().err
    header = Task.load(output).header
    assert header.labels == ("bus", "car", "train")
    data = header.provenance["data"]
    sizes = ("train_images", "validation_images", "test_images", "skipped_images", "split_seed")
    assert [data[name] for name in sizes] == [48, 7, 14, 1, 3]

    test = ["evaluate", "--task", str(output), "--data", str(unsplit), "--skip-broken", *backbone]
    for other in ([], ["--split-seed", "4"]):
        assert main([*test, *other]) == 2
        assert "trained on another split of vehicles, so that it would be judged by" in capsys.readouterr().err
    assert main([*test, "--split-seed", "3"]) == 0
    assert f"{header.provenance['test']['accuracy']:.4f}  with its token reduction" in capsys.readouterr().out
    picture(unsplit / "car" / "new.png", 200)
    assert main([*test, "--split-seed", "3"]) == 0
    assert MAY_BE_TRAINED_ON.format("vehicles") in capsys.readouterr().err
    copy = shutil.copytree(unsplit, tmp_path / "copy")
    (copy / "car" / "new.png").unlink()
    (copy / "bus" / "00.png").unlink()
    assert main([*test[:4], str(copy), *test[5:]]) == 0
    assert MAY_BE_TRAINED_ON.format("copy") in capsys.readouterr().err
    (unsplit / "train").rename(unsplit / "tram")
    assert main([*test, "--split-seed", "3"]) == 2
    different = "the classes of vehicles are not those of the task mine: it has no train; the task knows no tram"
    assert different in capsys.readouterr().err


def test_a_picture_in_two_splits_is_refused(folder: Path) -> None:
    (folder / "test" / "dog" / "copy.png").write_bytes((folder / "train" / "dog" / "a.png").read_bytes())
    with pytest.raises(DataError, match=r": 1 picture in two splits, .*: train/dog/a\.png and test/dog/copy\.png$"):
        load(folder)
    for i in range(12):
        (folder / "test" / "dog" / f"{i}.jpg").write_bytes((folder / "train" / "dog" / "b.jpg").read_bytes())
    with pytest.raises(DataError, match=r": 13 pictures in two splits, .*; and 3 more$"):
        load(folder)


def test_copies_of_a_picture_stay_in_one_split(unsplit: Path) -> None:
    first, *others = sorted((unsplit / "bus").iterdir())
    for other in others[:6]:
        other.write_bytes(first.read_bytes())
    dataset = load(unsplit)
    pixels = [set(everything(split)) for split in (dataset.train, dataset.val, dataset.test)]
    assert sum(map(len, pixels)) == len(set.union(*pixels))
