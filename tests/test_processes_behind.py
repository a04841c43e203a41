"""What one process has changed the other gets to, whatever the task folder has by then, though it failed at first."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pictures
from busy import taken
from changing import post, put, task_file
from serving import Files, Serving, write_foldable
from two import Both, seen, told


def test_what_was_sent_serves_in_both_whatever_the_folder_has_by_then(both: Both, files: Files, tmp_path: Path) -> None:
    first, second = both
    sent = task_file(tmp_path, seed=1)
    with ThreadPoolExecutor(1) as pool:
        with taken(second.runtime.pools.loader):
            changed = pool.submit(put, first, "digits", sent)
            first.until(lambda: told(first, "digits")["generation"] == 2)
            (files.tasks / "digits.safetensors").write_bytes(task_file(tmp_path, seed=2))
        assert changed.result().status_code == 200
    assert seen(both, "digits")["digest"] == hashlib.sha256(sent).hexdigest()


def test_what_one_cannot_follow_is_made_and_told_again(both: Both, files: Files, tmp_path: Path) -> None:
    first, second = both
    file = files.tasks / "digits.safetensors"
    read = file.read_bytes()
    with ThreadPoolExecutor(1) as pool:
        with taken(second.runtime.pools.loader):
            loaded = pool.submit(post, first, "/v1/tasks/digits/load")
            first.until(lambda: told(first, "digits")["generation"] == 2)
            file.write_bytes(task_file(tmp_path, seed=2))
        answer = loaded.result()
    assert answer.status_code == 503
    assert answer.json()["error"] == (
        "the change is made, but one of the processes did not follow: "
        "digits.safetensors: the file is another one by now"
    )
    assert "retry-after" not in answer.headers
    assert told(second, "digits")["generation"] == 1
    file.write_bytes(read)
    first.until(lambda: told(first, "digits") == told(second, "digits"))
    assert seen(both, "digits")["generation"] == 2


def test_a_pin_that_one_cannot_follow_is_told_again(both: Both, files: Files, tmp_path: Path) -> None:
    first, second = both
    write_foldable(files.tasks, "foldable")
    file = files.tasks / "foldable.safetensors"
    content = file.read_bytes()
    assert put(first, "foldable", content).status_code == 201
    with ThreadPoolExecutor(1) as pool:
        with taken(second.runtime.pools.folding):
            pinned = pool.submit(post, first, "/v1/tasks/foldable/pin")
            first.until(lambda: told(first, "foldable")["pinned"] is True)
            file.write_bytes(task_file(tmp_path, "foldable"))
        assert pinned.result().status_code == 503
    file.write_bytes(content)
    first.until(lambda: told(first, "foldable") == told(second, "foldable"))
    assert seen(both, "foldable")["pinned"] is True


def test_what_fails_fails_in_both(both: Both, asked: Serving, files: Files) -> None:
    (files.tasks / "digits.safetensors").write_bytes(b"no task")
    assert post(asked, "/v1/tasks/digits/load").status_code == 422
    before = seen(both, "digits")
    assert (before["state"], before["generation"]) == ("failed", 1)
    assert asked.classify(pictures.png()).status_code == 200
