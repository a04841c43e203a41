"""What decides whether a hot task is folded: the time that it was measured to take, the room there is, and the end."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from folding_part import PIXELS, Part, parts
from serving import REPADAPTER, Files, write_foldable
from torch import nn

from fpet.header import Method
from service.engine import Engine
from service.model.work import Work

pytestmark = pytest.mark.usefixtures("one_thread")


@contextmanager
def timed(files: Files, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[Part]:
    """The clock goes on with each forward: by 10 ms with one of the backbone itself, else by those `seconds`."""
    now = [0.0]
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(time, clock, lambda: now[0])
    with parts(files, Engine, calibration_repeats=0) as part:
        layer = part.engine.backbone.vit.get_submodule("blocks.0.attn.qkv")

        def passed(module: nn.Module, *_: object) -> None:
            now[0] += 0.01 if module is layer else seconds

        layer.register_forward_hook(passed)  # a folded copy of the backbone has it too
        yield part


@pytest.mark.parametrize(("seconds", "folds"), [(0.0097, True), (0.0099, False), (0.02, False)])
def test_it_is_folded_if_that_saves_its_share_of_the_time(  # noqa: PLR0917
    seconds: float,
    folds: bool,
    small_files: Files,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="service.folding")
    with timed(small_files, monkeypatch, seconds) as part:
        task = part.serve(write_foldable(tmp_path, "hot"))
        part.count(task, 16)
        assert part.folded(task) is folds
        said = "folded from now on" if folds else "unfolded as before"
        assert f"the task hot: batches of 16 of its images and 0 of others take {1000 * seconds:.2f} ms" in caplog.text
        assert f"10.00 ms unfolded: {said}" in caplog.text


def test_what_shares_its_batches_is_not_folded_if_that_makes_a_forward_more(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of the time saved of its own images is lost to those beside it, until it has the batches to itself."""
    caplog.set_level("INFO", logger="service.folding")
    with timed(small_files, monkeypatch, 0.005) as part:
        hot, other = (part.serve(write_foldable(tmp_path, name, seed)) for seed, name in enumerate(("hot", "other")))
        sizes = Counter[int]()
        layer = part.engine.backbone.vit.get_submodule("blocks.0.attn.qkv")
        layer.register_forward_hook(lambda _, given, __: sizes.update([len(given[0])]))
        for _ in range(3):
            part.count(hot, 1008, other, own=5)
        assert not part.folded(hot)
        assert sizes[16] == sizes[5] == sizes[11] > 0
        # Tried once: the next times nothing would be different.
        assert caplog.text.count("the task hot: batches of 5 of its images and 11 of others take 15.00 ms folded") == 1
        part.count(hot, 2016)
        assert part.folded(hot)


def test_batches_of_its_own_while_it_is_folded_do_not_say_how_others_would_be(
    small_files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with timed(small_files, monkeypatch, 0.005) as part:
        task, other = (part.serve(write_foldable(tmp_path, name, seed)) for seed, name in enumerate(("task", "other")))
        part.count(task, 160, other, own=8)
        part.folding.pin(task)
        part.count(task, 1600)
        part.folding.unpin(task)
        assert not part.folded(task)


def test_a_file_that_could_not_be_read_is_tried_again(small_files: Files, tmp_path: Path) -> None:
    with parts(small_files, calibration_repeats=0) as part:
        file = write_foldable(tmp_path, "hot")
        hot, moved = part.serve(file), tmp_path / "moved"
        file.rename(moved)
        part.count(hot, 16)
        assert not part.folded(hot)
        moved.rename(file)
        part.count(hot, 1008)  # told to be hot again
        assert part.folded(hot)


@pytest.fixture(scope="module")
def size(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of an instance of a task as `write_foldable` writes it by default."""
    with parts(small_files, calibration_repeats=0) as part:
        part.folding.pin(part.serve(write_foldable(tmp_path_factory.mktemp("pinned"), "pinned")))
        return int(part.value("resident_bytes", kind="folded"))


@pytest.mark.parametrize(("adapter", "folds"), [(REPADAPTER, 0), (Method("lora"), 1)], ids=str)
def test_a_task_with_a_similar_share_is_not_evicted(  # noqa: PLR0917
    adapter: Method, folds: int, size: int, small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not even folded, if how large one of its family is was seen before."""
    caplog.set_level("INFO", logger="service.folding")
    with parts(small_files, folded_bytes=size, calibration_repeats=0) as part:
        first = part.serve(write_foldable(tmp_path, "first"))
        other = part.serve(write_foldable(tmp_path, "other", adapter=Method("adaptformer")))
        hot = part.serve(write_foldable(tmp_path, "hot", adapter=adapter))
        for task, images in ((first, 16), (other, 496), (hot, 16)):  # the first has 0.6 of the share of the last
            part.count(task, images)
        assert [part.folded(task) for task in (first, hot)] == [True, False]
        assert caplog.text.count("the task hot stays unfolded for now") == folds


def test_what_found_no_room_is_folded_once_there_is(size: int, small_files: Files, tmp_path: Path) -> None:
    with parts(small_files, folded_bytes=size, calibration_repeats=0) as part:
        first = part.serve(write_foldable(tmp_path, "first"))
        hot = part.serve(write_foldable(tmp_path, "hot", adapter=Method("lora")))
        part.folding.pin(first)
        part.count(hot, 16)
        assert [part.folded(task) for task in (first, hot)] == [True, False]
        part.folding.unpin(first)
        part.count(hot, 1008)  # told to be hot again
        assert [part.folded(task) for task in (first, hot)] == [False, True]


def test_one_that_is_pinned_takes_the_room_of_that_asked_for_the_longest_ago(
    size: int, small_files: Files, tmp_path: Path
) -> None:
    with parts(small_files, folded_bytes=2 * size, calibration_repeats=0) as part:
        first, second, pinned = (part.serve(write_foldable(tmp_path, name)) for name in "abc")
        part.count(first, 16)
        part.count(second, 16)
        assert [part.folded(task) for task in (first, second)] == [True, True]
        part.folding.group(first, reduced=True)
        part.folding.pin(pinned)
        assert [part.folded(task) for task in (first, second, pinned)] == [True, False, True]


def test_once_closed_it_begins_nothing_more(small_files: Files, tmp_path: Path) -> None:
    with parts(small_files) as part:
        waiting, late = (part.serve(write_foldable(tmp_path, name)) for name in ("waiting", "late"))
        gate = threading.Event()
        part.pool.submit(gate.wait)
        part.folding.count(part.folding.group(waiting, reduced=True), [Work(waiting, PIXELS)] * 16)
        part.folding.close()
        gate.set()
        part.wait()
        part.pool.shutdown()
        part.folding.count(part.folding.group(late, reduced=True), [Work(late, PIXELS)] * 16)  # the last batches run on
        assert [part.folded(task) for task in (waiting, late)] == [False, False]
