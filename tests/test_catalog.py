"""Names to tasks: a file that cannot serve says why, and never disturbs what does."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from weakref import ref

import pytest
import torch
from catalogs import BACKBONE, catalog_of, scan
from safetensors.torch import save_file
from serving import write_task
from small import small_header

from fpet.errors import TaskError
from service.catalog import Catalog
from service.errors import NotReadyError, UnknownTaskError
from service.metrics import Metrics

BROKEN = [("broken", "loading"), ("broken", "failed")]  # what looks find: it might have been on its way


@pytest.fixture
def catalog(tmp_path: Path, metrics: Metrics) -> Catalog:
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE)
    (tmp_path / "notes.txt").write_text("no task")
    return catalog_of(tmp_path, metrics)


def test_tasks_are_available_before_they_are_loaded(catalog: Catalog) -> None:
    assert [(entry.name, entry.state) for entry in catalog.entries.all()] == [("digits", "available")]
    with pytest.raises(NotReadyError, match="the task 'digits' is not loaded"):
        catalog.entries.loaded("digits")
    with pytest.raises(UnknownTaskError, match="there is no task 'letters'"):
        catalog.entries.loaded("letters")
    catalog.require(["digits"])
    with pytest.raises(TaskError, match="there is no task 'letters' to load at start-up"):
        catalog.require(["letters", "digits"])


def test_loading_puts_a_task_into_service(catalog: Catalog, metrics: Metrics, tmp_path: Path) -> None:
    assert catalog.load("digits").state == "loaded"
    task = catalog.entries.loaded("digits")
    assert task.generation == 1
    size = (tmp_path / "digits.safetensors").stat().st_size
    assert metrics.registry.get_sample_value("fpet_task_bytes", {"task": "digits"}) == task.size == size


def test_what_is_out_of_service_is_held_by_nobody(catalog: Catalog) -> None:
    catalog.load("digits")
    left = ref(catalog.entries.loaded("digits"))
    catalog.unload("digits")
    gc.collect()
    assert left() is None
    assert catalog.entries.take_new() == []


def test_take_new_returns_a_task_once(catalog: Catalog, tmp_path: Path) -> None:
    catalog.load("digits")
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    catalog.load("digits")
    assert catalog.entries.take_new() == [catalog.entries.loaded("digits")]
    assert catalog.entries.take_new() == []


def test_take_new_leaves_out_a_replaced_task_that_is_still_referenced(catalog: Catalog, tmp_path: Path) -> None:
    catalog.load("digits")
    old = catalog.entries.loaded("digits")
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    catalog.load("digits")
    assert catalog.entries.take_new() == [catalog.entries.loaded("digits")] != [old]


def test_tasks_are_told_by_name_whichever_came_first(catalog: Catalog, tmp_path: Path) -> None:
    for name in ("letters", "cars"):
        write_task(tmp_path / f"{name}.safetensors", replace(small_header(BACKBONE), name=name), BACKBONE)
        scan(catalog)
    assert [entry.name for entry in catalog.entries.all()] == ["cars", "digits", "letters"]
    assert [task.header.name for task in catalog.entries.serving()] == ["cars", "letters"]  # the other is not loaded


@pytest.mark.parametrize("keeps", [True, False])
def test_the_bytes_that_were_put_are_had_once_by_whoever_knows_their_digest(
    keeps: bool, metrics: Metrics, tmp_path: Path
) -> None:
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE)
    catalog = catalog_of(tmp_path, metrics, keeps_content=keeps)
    data = (tmp_path / "digits.safetensors").read_bytes()
    digest = catalog.put("digits", data).snapshot().digest
    assert catalog.entries.take_content(digest) == (data if keeps else b"")
    assert catalog.entries.take_content(digest) == b""
    catalog.unload("digits")
    catalog.put("digits", data)
    assert catalog.entries.take_content("another") == b""
    assert catalog.entries.take_content(digest) == b""  # nobody asks for it any more


def test_a_new_file_is_a_new_generation_and_who_has_the_old_one_keeps_it(catalog: Catalog, tmp_path: Path) -> None:
    catalog.load("digits")
    old = catalog.entries.loaded("digits")
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    catalog.load("digits")
    new = catalog.entries.loaded("digits")
    assert (old.generation, new.generation) == (1, 2)
    assert old.digest != new.digest


def test_what_was_taken_out_of_service_stays_out(catalog: Catalog, metrics: Metrics, tmp_path: Path) -> None:
    assert scan(catalog) == []  # nor does anything come in that nobody asked for
    catalog.load("digits")
    catalog.unload("digits")
    assert metrics.registry.get_sample_value("fpet_task_bytes", {"task": "digits"}) is None
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE, seed=1)
    assert scan(catalog) == []
    with pytest.raises(NotReadyError, match="the task 'digits' is not loaded") as refused:
        catalog.entries.loaded("digits")
    assert refused.value.headers == {}  # it is no use to ask again
    (tmp_path / "late.safetensors").write_bytes(b"on its way")
    scan(catalog)
    with pytest.raises(NotReadyError, match="the task 'late' is being loaded") as refused:
        catalog.entries.loaded("late")
    assert refused.value.headers == {"retry-after": "1"}


def test_a_bad_file_leaves_the_old_generation_serving(catalog: Catalog, metrics: Metrics, tmp_path: Path) -> None:
    catalog.load("digits")
    old = catalog.entries.loaded("digits")
    (tmp_path / "digits.safetensors").write_bytes(b"truncated")
    entry = catalog.load("digits")
    assert entry.state == "failed"
    assert entry.reason is not None
    assert entry.reason.startswith("digits.safetensors: ")
    assert catalog.entries.loaded("digits") is old
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "failed"}) == 1


def test_a_file_must_hold_the_task_that_it_is_named_after(tmp_path: Path) -> None:
    write_task(tmp_path / "letters.safetensors", small_header(BACKBONE), BACKBONE)
    entry = catalog_of(tmp_path, Metrics([], [])).load("letters")
    assert entry.state == "failed"
    assert entry.reason == "letters.safetensors: the file holds the task 'digits', not 'letters'"


def test_a_task_whose_file_was_removed_fails(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "digits.safetensors").unlink()
    assert catalog.load("digits").state == "failed"
    with pytest.raises(NotReadyError, match=r"cannot serve: digits\.safetensors: cannot be read"):
        catalog.entries.loaded("digits")


def test_whatever_a_file_does_to_its_reader_the_others_load(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE)
    nested = {"fpet": "[" * 100_000}
    save_file({"x": torch.zeros(1)}, tmp_path / "nested.safetensors", nested)
    catalog = catalog_of(tmp_path, Metrics([], []))
    states = {entry.name: catalog.load(entry.name).state for entry in catalog.entries.all()}
    assert states == {"digits": "loaded", "nested": "failed"}
    assert "the task nested failed to load" in caplog.text


def test_clients_are_not_told_what_nobody_foresaw(
    tmp_path: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    def load(*_: object) -> NoReturn:
        raise ZeroDivisionError("the details")

    write_task(tmp_path / "digits.safetensors", small_header(BACKBONE), BACKBONE)
    entry = Catalog(tmp_path, load, metrics, max_bytes=10**6).load("digits")
    assert (entry.state, entry.reason) == ("failed", "an internal error; the log has it")
    assert "ZeroDivisionError: the details" in caplog.text


def test_what_nobody_foresaw_is_no_fault_of_a_file_that_is_put(tmp_path: Path, metrics: Metrics) -> None:
    def load(*_: object) -> NoReturn:
        raise ZeroDivisionError("the details")

    write_task(tmp_path / "x", small_header(BACKBONE), BACKBONE)
    (tmp_path / "tasks").mkdir()
    catalog = Catalog(tmp_path / "tasks", load, metrics, max_bytes=10**6)
    with pytest.raises(ZeroDivisionError):
        catalog.put("digits", (tmp_path / "x").read_bytes())
    assert (catalog.entries.find("digits"), list((tmp_path / "tasks").iterdir())) == (None, [])
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "failed"}) == 1


def test_what_a_killed_upload_left_is_removed(tmp_path: Path) -> None:
    left, of_others = tmp_path / ".digits.safetensors.a1b2c3d4.fpet-unfinished", tmp_path / ".digits.safetensors.aB3dE6"
    for path in (left, of_others):
        path.touch()
        os.utime(path, (0, 0))
    assert catalog_of(tmp_path, Metrics([], [])).entries.all() == []
    assert list(tmp_path.iterdir()) == [of_others]


def test_what_is_not_a_regular_file_is_not_waited_for(tmp_path: Path, metrics: Metrics) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    write_task(tmp_path / "elsewhere" / "digits.safetensors", small_header(BACKBONE), BACKBONE)
    (tmp_path / "digits.safetensors").symlink_to(tmp_path / "elsewhere" / "digits.safetensors")
    catalog = catalog_of(tmp_path, metrics)
    entries = {entry.name: catalog.load(entry.name) for entry in catalog.entries.all()}
    for name in ("folder", "pipe"):
        assert entries[name].reason == f"{name}.safetensors: cannot be read: it is not a regular file"
    assert entries["digits"].state == "loaded"


def test_a_file_that_is_not_even_read_failed_to_load(catalog: Catalog, metrics: Metrics, tmp_path: Path) -> None:
    (tmp_path / "large.safetensors").write_bytes(bytes(10**6 + 1))
    scan(catalog)
    (entry,) = scan(catalog)
    assert (entry.state, entry.reason) == (
        "failed",
        "large.safetensors: 1000001 bytes; the limit for a task file is 1000000",
    )
    assert metrics.registry.get_sample_value("fpet_task_loads_total", {"result": "failed"}) == 1
    assert scan(catalog) == []


def test_a_name_that_no_answer_can_tell_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    unspeakable = os.fsencode(tmp_path) + b"/\xff.safetensors"
    Path(os.fsdecode(unspeakable)).write_bytes(b"")
    catalog = catalog_of(tmp_path, Metrics([], []))
    assert (catalog.entries.all(), scan(catalog)) == ([], [])
    assert [record.getMessage() for record in caplog.records] == [
        r"skipped the task file '\udcff.safetensors': its name is not UTF-8"
    ]


def touch_permissions(path: Path) -> None:
    """Changes who may read a file, to what it was."""
    status = path.stat()
    while path.stat().st_ctime_ns == status.st_ctime_ns:  # that clock is coarse
        path.chmod(status.st_mode)


def test_what_failed_is_tried_again_once_it_may_be_read(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"no task")
    assert [catalog.load(entry.name).state for entry in catalog.entries.all()] == ["loaded"]
    assert [(entry.name, entry.state) for _ in range(3) for entry in scan(catalog)] == BROKEN
    for name in ("broken", "digits"):
        touch_permissions(tmp_path / f"{name}.safetensors")
    assert [catalog.unread(name) for name in ("broken", "digits")] == [True, False]
    looked = [(entry.name, entry.state) for _ in range(3) for entry in scan(catalog)]
    assert [one for one in looked if one[0] == "broken"] == BROKEN
    assert [one for one in looked if one[0] == "digits"] == [("digits", "loaded")]  # its bytes are those that serve
    assert catalog.entries.loaded("digits").generation == 1


def test_the_folder_must_exist(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="does not exist"):
        catalog_of(tmp_path / "nowhere", Metrics([], []))


def test_a_hidden_file_is_no_task(catalog: Catalog, tmp_path: Path) -> None:
    (tmp_path / "._digits.safetensors").write_bytes(b"what a Mac leaves beside each file")
    assert scan(catalog) == []
    assert [entry.name for entry in catalog.entries.all()] == ["digits"]
