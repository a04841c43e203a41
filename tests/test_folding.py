"""Hot tasks are folded where that is measured to be faster, and pinned ones always."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from counted import saving_of
from folding_part import PIXELS, FastFolded, Part, SlowFolded, parts
from serving import Files, write_foldable
from small import ARCHITECTURE, ARGUMENTS

from fpet.backbone import create_backbone, save_backbone
from fpet.header import Method
from service.engine import Engine
from service.errors import ConflictError, InvalidRequestError
from service.model.folded_cache import FoldedCache
from service.model.work import Work

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def part(small_files: Files) -> Iterator[Part]:
    with parts(small_files) as made:
        yield made


def test_a_task_that_becomes_hot_is_folded_and_says_so(part: Part, tmp_path: Path) -> None:
    hot, other = part.serve(write_foldable(tmp_path, "hot")), part.serve(write_foldable(tmp_path, "other", 1))
    part.ask(hot, 5)
    assert not part.folded(hot)
    part.ask(hot, 10)  # a share of 1 - exp(-15 / 1000)
    part.ask(other, 5)
    assert (part.folded(hot), part.folded(other)) == (True, False)
    assert (part.value("batches_total", path="mixed"), part.value("batches_total", path="folded")) == (20, 0)
    part.ask(hot, 3)
    part.ask(hot, 2, reduced=False)
    assert part.value("batches_total", path="folded") == 5
    instance, pinned = part.folding.state(hot)
    assert instance is not None
    assert part.value("resident_bytes", kind="folded") == instance.bytes > 0
    assert not pinned
    part.count(hot, 1200)  # told to be hot again
    assert part.folding.state(hot)[0] is instance


def test_savings_of_the_folded_rest_on_timings_of_their_own(part: Part, tmp_path: Path) -> None:
    part.metrics.add_task("hot", 1)
    hot = part.serve(write_foldable(tmp_path, "hot"))
    part.engine.calibrate(hot, 1, 1)
    part.ask(hot, 15)
    own = hot.family.timings.calibration(True)
    assert [point.batch_size for point in own.points] == [1, 2, 4]
    assert own != hot.family.timings.calibration(False)
    before = saving_of(part.metrics, "hot")
    part.ask(hot, 1)
    after = saving_of(part.metrics, "hot")
    seconds = after.forward_seconds - before.forward_seconds
    assert after.baseline_seconds - before.baseline_seconds == pytest.approx(seconds * own.ratios[0])
    part.ask(hot, 1, reduced=False)  # costs, and saves nothing
    assert saving_of(part.metrics, "hot") == after
    other = part.serve(write_foldable(tmp_path, "other", 1))
    part.ask(other, 15)
    assert part.folded(other)
    assert other.family.timings.calibration(True) == own  # it takes as long


def test_what_left_service_meanwhile_is_not_even_tried(
    part: Part, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="service.folding")
    gone = part.serve(write_foldable(tmp_path, "gone"))
    part.serving.remove(gone)
    part.ask(gone, 15)
    assert not part.folded(gone)
    assert not caplog.records


def test_one_that_is_not_faster_is_dropped_and_not_tried_again(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="service.folding")
    with parts(small_files, kind=SlowFolded) as part:
        hot, other = part.serve(write_foldable(tmp_path, "hot")), part.serve(write_foldable(tmp_path, "other"))
        part.ask(hot, 15)
        for task in (other, hot):  # until it is cold, and hot again
            part.count(task, 4800)
        assert (part.folded(hot), part.folded(other)) == (False, False)
        assert [record.args[0] for record in caplog.records] == ["hot", "other"]  # type: ignore[index]
        assert "unfolded as before" in caplog.text


def test_what_does_not_fold_is_left_alone(part: Part, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = part.serve(write_foldable(tmp_path, "adaptformer", adapter=Method("adaptformer", {"dim": 4})))
    part.ask(task, 15)
    assert not part.folded(task)
    assert not caplog.records
    with pytest.raises(InvalidRequestError, match="adaptformer: AdaptFormer does not fold"):
        part.folding.pin(task)


def test_without_a_budget_nothing_is_folded(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="service.folding")
    with parts(small_files, folded_bytes=0) as part:
        task = part.serve(write_foldable(tmp_path, "hot"))
        part.ask(task, 15)
        assert not part.folded(task)
        assert not caplog.records  # nor tried
        with pytest.raises(ConflictError, match="of the 0 of folded_bytes"):
            part.folding.pin(task)


def test_a_hot_task_makes_room_for_itself_but_not_at_the_cost_of_a_pinned_one(
    small_files: Files, tmp_path: Path
) -> None:
    with parts(small_files) as part:
        first = part.serve(write_foldable(tmp_path, "first"))
        part.folding.pin(first)
        size = int(part.value("resident_bytes", kind="folded"))
    with parts(small_files, folded_bytes=2 * size) as part:
        first, second, third = (part.serve(write_foldable(tmp_path, name, seed)) for seed, name in enumerate("abc"))
        part.folding.pin(first)
        part.ask(second, 15)
        assert (part.folded(second), part.value("evictions_total")) == (True, 0)
        part.ask(third, 15)  # as hot as the second by now
        assert [part.folded(task) for task in (first, second, third)] == [True, True, False]
        part.count(third, 1200)  # far hotter, and told so again
        assert [part.folded(task) for task in (first, second, third)] == [True, False, True]
        assert (part.value("evictions_total"), part.value("resident_bytes", kind="folded")) == (1, 2 * size)
        part.folding.pin(third)
        with pytest.raises(
            ConflictError, match=f"of the {2 * size} of folded_bytes {2 * size} are taken by tasks that"
        ):
            part.folding.pin(second)
        part.count(second, 3000)  # hot, but there is no room
        assert not part.folded(second)
        part.folding.unpin(first)
        part.count(second, 1200)  # there is now
        assert [part.folded(task) for task in (first, second, third)] == [False, True, True]


@pytest.mark.parametrize(("kind", "stays"), [(FastFolded, True), (SlowFolded, False)])
def test_what_was_pinned_stays_if_it_is_faster(
    small_files: Files, tmp_path: Path, kind: type[Engine], stays: bool
) -> None:
    with parts(small_files, kind) as part:
        task = part.serve(write_foldable(tmp_path, "pinned"))
        part.folding.pin(task)
        part.folding.pin(task)
        assert part.folding.state(task)[1]
        part.wait()
        assert [point.batch_size for point in task.family.timings.calibration(True).points] == [1, 2, 4]
        part.folding.unpin(task)
        assert (part.folded(task), part.folding.state(task)[1]) == (stays, False)
        part.folding.unpin(task)


def test_what_is_out_of_service_goes_and_does_not_come_back(part: Part, tmp_path: Path) -> None:
    old = part.serve(write_foldable(tmp_path, "task"))
    part.folding.pin(old)
    group = part.folding.group(old, reduced=True)
    part.serving.clear()
    part.folding.retain()
    assert (part.folding.state(old), part.value("resident_bytes", kind="folded")) == ((None, False), 0)
    part.engine.run(group, [Work(old, PIXELS)])  # who began with it finishes with it
    with pytest.raises(ConflictError, match="the task 'task' is another by now"):
        part.folding.pin(old)
    assert part.value("resident_bytes", kind="folded") == 0


def test_for_what_is_out_of_service_nobody_makes_room(small_files: Files, tmp_path: Path) -> None:
    with parts(small_files) as part:
        first = part.serve(write_foldable(tmp_path, "first"))
        part.count(first, 16)
        size = part.value("resident_bytes", kind="folded")
    with parts(small_files, folded_bytes=int(size)) as part:
        first, gone = (part.serve(write_foldable(tmp_path, name)) for name in ("first", "gone"))
        part.count(first, 16)
        part.serving.remove(gone)
        with pytest.raises(ConflictError, match="the task 'gone' is another by now"):
            part.folding.pin(gone)
        assert (part.folded(first), part.value("evictions_total")) == (True, 0)


def test_a_file_that_was_replaced_is_not_folded_under_the_old_digest(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path / "backbone.safetensors", tmp_path)
    shutil.copy(small_files.backbone, files.backbone)
    with parts(files, dtype=torch.bfloat16) as part:
        task = part.serve(write_foldable(tmp_path, "task"))
        write_foldable(tmp_path, "task", seed=1)
        with pytest.raises(ConflictError, match="its file or the backbone's is another by now"):
            part.folding.pin(task)
        write_foldable(tmp_path, "task")
        part.folding.pin(task)  # from the backbone's file, as it serves in bfloat16
        assert part.folded(task)
        part.folding.unpin(task)
        other = part.serve(write_foldable(tmp_path, "other"))
        save_backbone(files.backbone, create_backbone(ARCHITECTURE, ARGUMENTS))
        with pytest.raises(ConflictError, match="its file or the backbone's is another by now"):
            part.folding.pin(other)
        assert f"{files.backbone}: the file is another one by now" in caplog.text
        files.backbone.unlink()
        with pytest.raises(ConflictError, match="its file or the backbone's is another by now"):
            part.folding.pin(other)


def test_what_leaves_service_in_the_moment_in_which_it_is_kept_goes_too(
    part: Part, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, add = part.serve(write_foldable(tmp_path, "first")), FoldedCache.add

    def late(*arguments: object, **options: object) -> None:
        part.serving.clear()
        part.folding.retain()
        add(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(FoldedCache, "add", late)
    with pytest.raises(ConflictError, match="is another by now"):
        part.pool.submit(part.folding.pin, task).result()
    assert part.value("resident_bytes", kind="folded") == 0
