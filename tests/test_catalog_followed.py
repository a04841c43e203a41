"""What happens in the task folder takes effect, and what only seems to happen there does not."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import os
import resource
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from catalogs import BACKBONE, catalog_of, scan
from serving import write_task
from small import small_header

from fpet.errors import TaskError
from service.catalog import Catalog
from service.errors import StorageError
from service.metrics import Metrics
from service.tasks.folder import TaskFolder

_OTHER = Path("/dev/shm")


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


@pytest.mark.skipif(not _OTHER.is_dir() or _OTHER.stat().st_dev == Path.cwd().stat().st_dev, reason="one file system")
def test_an_unmounted_folder_takes_no_task_along(file: Path, tmp_path: Path, metrics: Metrics) -> None:
    """What was mounted there is gone, and what lies below is empty."""
    (tmp_path / "place").symlink_to(file.parent)
    catalog = catalog_of(tmp_path / "place", metrics)
    task, data = catalog.load("digits").task, file.read_bytes()
    with tempfile.TemporaryDirectory(dir=_OTHER) as below:
        (tmp_path / "place").unlink()
        (tmp_path / "place").symlink_to(below)
        for name in ("", ".not-mounted", "lost+found"):
            (Path(below) / name).touch()
            with pytest.raises(TaskError, match="the task folder has no tasks, and is of another file system than it"):
                catalog.due()
        changes = (
            lambda: catalog.put("digits", data),
            lambda: catalog.delete("digits"),
            lambda: catalog.load("digits"),
        )
        for change in changes:
            with pytest.raises(StorageError, match=r"^the task folder has no tasks, and is of another file system"):
                change()  # which would come back, or be lost, with what was mounted
        assert not list(Path(below).glob("*.safetensors"))
        assert catalog.entries.loaded("digits") is task
        write_task(
            Path(below) / "other.safetensors", dataclasses.replace(small_header(BACKBONE), name="other"), BACKBONE
        )
        assert catalog.due() == ["digits", "other"]  # another one was mounted, on purpose
        assert catalog.entries.find("digits") is None


def test_a_folder_that_is_gone_for_a_moment_takes_no_task_along(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    task = catalog.entries.loaded("digits")
    file.parent.rename(tmp_path / "elsewhere")
    with pytest.raises(TaskError, match="the task folder cannot be listed: No such file"):
        scan(catalog)
    assert catalog.entries.loaded("digits") is task
    data = (tmp_path / "elsewhere" / file.name).read_bytes()
    with pytest.raises(StorageError, match="the task folder is gone"):
        catalog.put("digits", data)  # which does not make it anew
    with pytest.raises(StorageError, match="the task folder is gone"):
        catalog.delete("digits")  # of which the file would know nothing
    with pytest.raises(StorageError, match="the task folder is gone"):
        catalog.load("digits")
    assert catalog.entries.loaded("digits") is task
    assert catalog.entries.require("digits").state == "loaded"  # nothing is wrong with the file
    (tmp_path / "elsewhere").rename(file.parent)
    assert scan(catalog) == []
    file.unlink()
    assert scan(catalog) == catalog.entries.all() == []


def test_a_file_that_could_not_be_read_for_a_moment_serves_once_it_can_be(file: Path, metrics: Metrics) -> None:
    catalog = catalog_of(file.parent, metrics)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with ThreadPoolExecutor(1) as pool:
            (failed,) = catalog.load_all(["digits"], pool)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (failed.state, failed.reason) == ("failed", "digits.safetensors: cannot be read: Too many open files")
    scan(catalog)
    assert catalog.entries.require("digits").state == "loaded"


def test_the_same_bytes_again_are_the_same_task(catalog: Catalog, file: Path, metrics: Metrics) -> None:
    task, data = catalog.entries.loaded("digits"), file.read_bytes()
    os.utime(file, (0, 0))
    scan(catalog)
    file.unlink()
    file.write_bytes(data)  # as a volume delivers them again
    scan(catalog)
    assert catalog.entries.loaded("digits") is task
    assert catalog.entries.require("digits").state == "loaded"
    assert scan(catalog) == []  # its new time of change is known by now
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "loaded"}) == 1
    assert catalog.load("digits").task is not task  # somebody asked for it


def test_a_task_that_comes_back_is_another(catalog: Catalog, file: Path, metrics: Metrics, tmp_path: Path) -> None:
    file.rename(tmp_path / file.name)
    scan(catalog)
    assert metrics.registry.get_sample_value("fpet_task_bytes", {"task": "digits"}) is None
    (tmp_path / file.name).rename(file)
    assert catalog.unread("digits")
    assert [(entry.state, entry.task and entry.task.generation) for entry in scan(catalog)] == [("loaded", 2)]
    file.unlink()
    catalog.delete("digits")  # of which nothing is left
    assert catalog.entries.all() == []


def test_the_old_bytes_mend_what_failed(catalog: Catalog, file: Path) -> None:
    task, data = catalog.entries.loaded("digits"), file.read_bytes()
    file.write_bytes(b"no task")
    assert catalog.load("digits").state == "failed"
    file.write_bytes(data)
    (entry,) = scan(catalog)
    assert (entry.state, entry.reason, entry.task) == ("loaded", None, task)


def test_a_file_that_is_being_written_has_not_failed(
    catalog: Catalog, file: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(file.parent / "elsewhere" / "digits.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    data = (file.parent / "elsewhere" / "digits.safetensors").read_bytes()
    for length in range(0, len(data), len(data) // 4):
        file.write_bytes(data[:length])
        assert [entry.state for entry in scan(catalog)] == ["loading"]
        assert catalog.entries.loaded("digits").generation == 1
    file.write_bytes(data)
    assert [entry.state for entry in scan(catalog)] == ["loaded"]
    assert catalog.entries.loaded("digits").generation == 2
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "failed"}) == 0
    assert caplog.records == []


def test_a_file_that_stays_bad_failed_once(catalog: Catalog, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_bytes(b"no task")
    states = [entry.state for _ in range(3) for entry in scan(catalog)]
    assert states == ["loading", "failed"]
    assert len(caplog.records) == 1


def test_the_log_tells_what_becomes_of_tasks(catalog: Catalog, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = catalog.entries.loaded("digits").digest[:12]
    with caplog.at_level(logging.INFO):
        catalog.unload("digits")
        write_task(file, small_header(BACKBONE), BACKBONE, seed=1)
        second = catalog.put("digits", file.read_bytes()).task
        file.unlink()
        scan(catalog)
    assert second is not None
    assert [record.getMessage() for record in caplog.records] == [
        f"the task digits is out of service: generation 1, digest {first}",
        f"the task digits is in service: generation 2, digest {second.digest[:12]}",
        f"the task digits is gone: generation 2, digest {second.digest[:12]}",
    ]


def test_a_file_in_the_place_of_another_is_noticed_by_itself(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    """As long and as old as the one before: copied with its time, or written within a tick of the clock."""
    other, status = tmp_path / file.name, file.stat()
    write_task(other, small_header(BACKBONE), BACKBONE, seed=1)
    assert other.stat().st_size == status.st_size
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file)
    assert catalog.unread("digits")
    assert [(entry.state, entry.task and entry.task.generation) for entry in scan(catalog)] == [("loaded", 2)]


def test_a_file_written_in_place_with_the_old_time_is_noticed(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    """As by `cp -p`, of files from an archive whose times are all the same."""
    other, before = tmp_path / file.name, file.stat()
    write_task(other, small_header(BACKBONE), BACKBONE, seed=1)
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # that clock is coarse
        file.write_bytes(other.read_bytes())
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = file.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    assert catalog.unread("digits")
    assert [(entry.state, entry.task and entry.task.generation) for entry in scan(catalog)] == [("loaded", 2)]


def test_a_link_that_leads_nowhere_any_more_failed(catalog: Catalog, file: Path, tmp_path: Path) -> None:
    task = catalog.entries.loaded("digits")
    file.rename(tmp_path / file.name)
    file.symlink_to(tmp_path / file.name)
    assert [entry.task for entry in scan(catalog)] == [task]  # the very same file, under another name
    (tmp_path / file.name).unlink()
    assert [entry.state for _ in range(3) for entry in scan(catalog)] == ["loading", "failed"]
    assert catalog.entries.loaded("digits") is task


def test_a_file_that_is_on_its_way_was_not_read(catalog: Catalog, file: Path) -> None:
    """So that no conditional change overwrites it."""
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    assert [entry.state for entry in scan(catalog)] == ["loading"]
    assert catalog.unread("digits")
    scan(catalog)
    assert not catalog.unread("digits")  # it stays as it is, and what it is was said


def test_what_is_written_in_place_while_it_is_read_does_not_serve(
    catalog: Catalog, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `rsync --inplace`: it has its whole length all the time."""
    own, read = tmp_path / file.name, TaskFolder.read
    write_task(own, small_header(BACKBONE), BACKBONE, seed=1)
    old, new = file.read_bytes(), own.read_bytes()
    half = len(new) // 2

    def in_place(start: int, data: bytes) -> None:
        with file.open("r+b") as opened:
            opened.seek(start)
            opened.write(data)

    def reading(folder: TaskFolder, path: Path) -> bytes:
        data = read(folder, path)
        in_place(half, new[half:])
        return data

    assert len(old) == len(new)
    in_place(0, new[:half])
    with monkeypatch.context() as during:
        during.setattr(TaskFolder, "read", reading)
        assert [entry.state for entry in scan(catalog)] == ["loading"]
    assert catalog.entries.loaded("digits").generation == 1
    scan(catalog)
    assert catalog.entries.loaded("digits").digest == hashlib.sha256(new).hexdigest()


def test_of_unspeakable_names_that_are_gone_nothing_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, path = TaskFolder(tmp_path, 1), Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.safetensors"))
    for times in (1, 2):
        path.write_bytes(b"")
        assert (folder.files(), folder.files()) == ({}, {})
        assert len(caplog.records) == times  # it is a new one to which nobody was told
        path.unlink()
        assert folder.files() == {}
