"""What is put into service is in the folder and answers, or neither, whatever else happens in the folder."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from catalogs import BACKBONE, catalog_of, scan
from serving import write_task
from small import small_header

from service.catalog import Catalog
from service.errors import ConflictError, InvalidTaskError, StorageError
from service.metrics import Metrics
from service.tasks.folder import TaskFolder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a task, in a folder of its own."""
    path = tmp_path / "tasks" / "digits.safetensors"
    write_task(path, small_header(BACKBONE), BACKBONE)
    return path


@pytest.fixture
def catalog(file: Path, metrics: Metrics) -> Catalog:
    """It serves the task."""
    catalog = catalog_of(file.parent, metrics)
    catalog.load("digits")
    return catalog


def test_what_was_put_is_known_and_followed(catalog: Catalog, file: Path) -> None:
    data = file.read_bytes()
    catalog.unload("digits")
    assert catalog.put("digits", data).state == "loaded"
    assert (catalog.unread("digits"), scan(catalog)) == (False, [])
    write_task(file, small_header(BACKBONE), BACKBONE, seed=1)
    assert [(entry.state, entry.task and entry.task.generation) for entry in scan(catalog)] == [("loaded", 3)]


def replace_once_changed(path: Path, own: Path, before: int) -> None:
    """As another replica with the same folder may, at the very moment at which the file is another than before."""
    while path.stat().st_ino == before:
        pass
    own.replace(path)


def test_what_another_puts_right_after_is_seen_at_the_next_look(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    own = tmp_path / file.name
    write_task(own, small_header(BACKBONE), BACKBONE, seed=2)
    ours = own.read_bytes()
    write_task(own, small_header(BACKBONE), BACKBONE, seed=1)
    theirs = own.read_bytes()
    with ThreadPoolExecutor(1) as other:
        for _ in range(30):
            own.write_bytes(theirs)
            replaced = other.submit(replace_once_changed, file, own, file.stat().st_ino)
            catalog.put("digits", ours)
            replaced.result()
            scan(catalog)
            assert catalog.entries.loaded("digits").digest == hashlib.sha256(theirs).hexdigest()


def test_what_came_while_a_task_was_built_can_keep_it_from_being_written(catalog: Catalog, file: Path) -> None:
    data, task = file.read_bytes(), catalog.entries.loaded("digits")
    write_task(file, small_header(BACKBONE), BACKBONE, seed=1)
    ours = file.read_bytes()
    file.write_bytes(data)

    def check() -> None:
        file.write_bytes(b"another's")
        raise ConflictError("the folder has another file")

    with pytest.raises(ConflictError):
        catalog.put("digits", ours, check)
    assert (file.read_bytes(), catalog.entries.loaded("digits")) == (b"another's", task)
    file.write_bytes(data)
    assert (catalog.entries.require("digits").state, scan(catalog)) == ("loaded", [catalog.entries.require("digits")])


def test_the_same_bytes_put_again_stay_what_they_are(catalog: Catalog, file: Path, metrics: Metrics) -> None:
    task, data = catalog.entries.loaded("digits"), file.read_bytes()
    file.write_bytes(b"no task")
    assert catalog.load("digits").state == "failed"
    entry = catalog.put("digits", data)
    assert (entry.state, entry.reason, entry.task) == ("loaded", None, task)
    assert (catalog.entries.loaded("digits") is task, file.read_bytes()) == (True, data)
    assert scan(catalog) == []  # that file is the one that serves
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "loaded"}) == 1


def test_what_lies_there_already_is_not_written_again(catalog: Catalog, file: Path) -> None:
    data, written = file.read_bytes(), file.stat()
    for _ in range(2):
        assert catalog.put("digits", data).state == "loaded"
    assert file.stat() == written  # so that it may be put where nothing can be written
    for another in (b"another's", None):
        file.unlink() if another is None else file.write_bytes(another)
        catalog.put("digits", data)
        assert file.read_bytes() == data


def test_what_cannot_be_put_is_refused_and_changes_nothing(
    catalog: Catalog, file: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    before, data = catalog.entries.all(), file.read_bytes()
    with pytest.raises(InvalidTaskError, match=r"digits\.safetensors: not a complete safetensors file"):
        catalog.put("digits", b"no task")
    assert (catalog.entries.all(), file.read_bytes()) == (before, data)
    file.write_bytes(b"no task")
    assert catalog.load("digits").state == "failed"
    assert catalog.put("digits", data).reason is None
    for result in ("refused", "failed"):  # a client's fault, and one of what lies in the folder
        assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": result}) == 1
    levels = [record.levelname for record in caplog.records if "serv" not in record.getMessage()]
    assert levels == ["WARNING", "ERROR"]


def test_a_file_that_was_put_is_not_looked_at_again(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    write_task(tmp_path / file.name, small_header(BACKBONE), BACKBONE, seed=1)
    catalog.put("digits", (tmp_path / file.name).read_bytes())
    assert (catalog.unread("digits"), scan(catalog)) == (False, [])


def test_a_folder_that_goes_in_the_moment_of_a_put_is_not_made_anew(
    catalog: Catalog, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path / "other.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    data, require = (tmp_path / "other.safetensors").read_bytes(), TaskFolder.require

    def and_gone(folder: TaskFolder) -> None:
        require(folder)
        file.parent.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(TaskFolder, "require", and_gone)
    with pytest.raises(StorageError, match="cannot be written: No such file"):
        catalog.put("digits", data)
    assert not file.parent.exists()
