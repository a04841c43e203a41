"""What happens in the task folder happens in all processes: the first follows it, and the others follow the first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from busy import taken
from changing import put, task_file
from serving import KEY, Files, serving, small_settings
from two import Both, alike, seen, told, two

from service.processes.peers import Peers


@pytest.fixture
def both(files: Files, tmp_path: Path) -> Iterator[Both]:
    with two(small_settings(files, admin_key=KEY), tmp_path) as services:
        yield services


def replace(files: Files, name: str, data: bytes) -> None:
    """As a file that is written beside its place and renamed."""
    beside = files.tasks / f".{name}"
    beside.write_bytes(data)
    beside.replace(files.tasks / f"{name}.safetensors")


def until_both(both: Both, task: str, **expected: object) -> None:
    """Waits until both tell this of a task."""
    both[0].until(lambda: all(expected.items() <= told(one, task).items() for one in both))


def test_what_changes_in_the_folder_is_told_alike_by_both(both: Both, files: Files, tmp_path: Path) -> None:
    first, second = task_file(tmp_path, "letters", seed=1), task_file(tmp_path, "letters", seed=2)
    replace(files, "letters", first)
    until_both(both, "letters", state="loaded", digest=hashlib.sha256(first).hexdigest(), generation=1)
    replace(files, "letters", second)
    until_both(both, "letters", state="loaded", digest=hashlib.sha256(second).hexdigest(), generation=2)
    replace(files, "letters", b"no task")
    until_both(both, "letters", state="failed", generation=2)
    assert str(seen(both, "letters")["reason"]).startswith("letters.safetensors: not a complete safetensors file")
    (files.tasks / "letters.safetensors").unlink()
    until_both(both, "letters", error_type="unknown_task")


def test_one_that_missed_a_version_is_at_the_same_generation(both: Both, files: Files, tmp_path: Path) -> None:
    first, second = both
    last = task_file(tmp_path, seed=2)
    with taken(second.runtime.pools.loader):
        replace(files, "digits", task_file(tmp_path, seed=1))
        first.until(lambda: told(first, "digits")["generation"] == 2)
        replace(files, "digits", last)
        first.until(lambda: told(first, "digits")["generation"] == 3)  # while the other is still told of the second
    until_both(both, "digits", digest=hashlib.sha256(last).hexdigest())
    first.until(lambda: alike(both, "digits"))
    generation = seen(both, "digits")["generation"]
    for one in both:
        assert one.client.get(f"/v2/models/digits/versions/{generation}/ready").status_code == 200


def test_a_change_by_http_and_one_of_the_folder_take_turns(both: Both, files: Files, tmp_path: Path) -> None:
    for seed in range(1, 9, 2):
        assert put(both[seed // 2 % 2], "digits", task_file(tmp_path, seed=seed)).status_code == 200
        last = task_file(tmp_path, seed=seed + 1)
        replace(files, "digits", last)
        until_both(both, "digits", digest=hashlib.sha256(last).hexdigest())
        both[0].until(lambda: alike(both, "digits"))
    assert seen(both, "digits")["generation"] == 9


def test_one_that_starts_later_is_told_what_it_missed(files: Files, tmp_path: Path) -> None:
    settings = small_settings(files, admin_key=KEY)
    data = task_file(tmp_path, seed=1)
    with serving(settings, Peers(tmp_path, 0, 2)) as first:
        replace(files, "digits", data)
        first.until(lambda: told(first, "digits")["generation"] == 2)
        with serving(settings, Peers(tmp_path, 1, 2)) as second:
            until_both((first, second), "digits", digest=hashlib.sha256(data).hexdigest(), generation=2)


def test_what_was_there_only_when_the_other_looked_is_gone_in_both(files: Files, tmp_path: Path) -> None:
    settings = small_settings(files, admin_key=KEY)
    replace(files, "letters", task_file(tmp_path, "letters"))
    with serving(settings, Peers(tmp_path, 1, 2)) as second:
        assert told(second, "letters")["state"] == "loaded"
        (files.tasks / "letters.safetensors").unlink()
        with serving(settings, Peers(tmp_path, 0, 2)) as first:
            until_both((first, second), "letters", error_type="unknown_task")
            assert told(second, "digits")["state"] == "loaded"


def test_what_the_other_was_not_told_yet_is_behind(files: Files, tmp_path: Path) -> None:
    with serving(small_settings(files, admin_key=KEY), Peers(tmp_path, 0, 2)) as first:
        first.until(lambda: first.metric("tasks_behind") == 2)
