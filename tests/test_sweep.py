"""A sweep: each run is one row, what fails does not stop it, and neither does a kill."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from picture_files import picture, truncate
from plans import PLAN, command, left, started, without_times
from small import small_backbone

from fpet.cli import main
from fpet.flops import macs
from fpet.hardware import cpu
from fpet.header import Method
from fpet.sweeps.results import Row, read_rows
from fpet.task import Task

pytestmark = pytest.mark.usefixtures("one_thread")


def with_empty(folder: Path) -> str:
    """The plan, whose second data set is a folder that is there and holds nothing."""
    (folder / "nowhere").mkdir(exist_ok=True)
    return PLAN.replace("nowhere", str(folder / "nowhere"))


@pytest.fixture(scope="module")
def swept(backbone_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep's table and of the task files that it kept."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "plan.toml").write_text(with_empty(folder))
    assert main(command(folder / "plan.toml", folder / "table.csv", backbone_file, "--keep", str(folder / "kept"))) == 1
    return folder


def by_cell(path: Path) -> dict[tuple[str, str], Row]:
    return {(row.data, row.method): row for row in read_rows(path)}


def test_each_run_is_a_row(swept: Path) -> None:
    empty = str(swept / "nowhere")
    assert [(row.data, row.method) for row in read_rows(swept / "table.csv")] == [
        (data, method) for data in ("digits", empty) for method in ("Linear", "LoRA + FPET", "Too fast")
    ]
    row = by_cell(swept / "table.csv")["digits", "Linear"]
    assert (row.seed, row.epochs, row.batch_size, row.precision, row.error) == (3, 2, 100, "float32", "")
    assert (row.tokens_in, row.tokens_out, row.parameters) == (17, 17, 0)
    assert row.test_accuracy == row.test_accuracy_unreduced
    assert (row.train_images, row.validation_images, row.test_images) == (800, 200, 597)
    assert row.gmacs == macs(small_backbone(), Method("none"), Method("none")) / 1e9
    assert row.training_seconds is not None
    assert row.training_seconds > 0
    assert (row.memory, row.device) == ("kept", cpu.name())


def test_a_row_says_what_the_task_file_says(swept: Path) -> None:
    row = by_cell(swept / "table.csv")["digits", "LoRA + FPET"]
    [path] = (path for path in (swept / "kept").iterdir() if "lora" in path.name)
    task = Task.load(path)
    origin = task.header.provenance
    assert path.name == f"digits-lora-fpet-3-{row.run}.safetensors"
    assert (row.task_bytes, row.epochs, row.seed) == (task.size, 1, 3)
    assert (task.header.reducer.arguments["block"], json.loads(row.reducer_arguments)) == (0, {"block": 0})
    assert (row.test_accuracy, row.test_accuracy_unreduced, row.best_epoch) == (
        origin["test"]["accuracy"], origin["test"]["accuracy_unreduced"], origin["epoch"]
    )  # fmt: skip
    assert row.validation_accuracy == max(tried["accuracy"] for tried in origin["scale_search"])
    assert [tried["scale"] for tried in origin["scale_search"]] == [0.5, 2.0]
    assert row.scale == task.header.adapter.arguments["scale"]
    assert row.gmacs == macs(small_backbone(), task.header.adapter, task.header.reducer, folded=True) / 1e9


def test_a_folder_may_be_read_in_several_ways(
    backbone_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(20):
        picture(tmp_path / "own" / "ab"[index % 2] / f"{index}.png", 10 * index)
    folder = str(tmp_path / "own")
    plan = (
        PLAN.partition("[[method]]")[0]
        .replace("= 100", "= 4")
        .replace('"digits", "nowhere"', f'"{folder}", {{ folder = "{folder}", split_seed = 5, skip_broken = true }}')
    )
    (tmp_path / "plan.toml").write_text(plan + '[[method]]\nname = "Linear"\nadapter = "none"\nreducer = "none"\n')
    kept = tmp_path / "kept"
    assert main(command(tmp_path / "plan.toml", tmp_path / "table.csv", backbone_file, "--keep", str(kept))) == 0
    first, second = read_rows(tmp_path / "table.csv")
    assert (first.data, second.data) == (folder, f"{folder} split_seed=5 skip_broken=True")
    seeds = [Task.load(path).header.provenance["data"]["split_seed"] for path in sorted(kept.iterdir())]
    assert sorted(seeds) == [0, 5]
    capsys.readouterr()
    truncate(tmp_path / "own" / "a" / "0.png")
    assert main(command(tmp_path / "plan.toml", tmp_path / "broken.csv", backbone_file)) == 1
    whole, skipping, _ = capsys.readouterr().out.splitlines()[1:]
    assert "1 of 20 pictures cannot be read" in whole
    assert skipping.endswith(" s, pictures left out: 1")


def test_reduction_shrinks_what_a_step_keeps(backbone_file: Path, tmp_path: Path) -> None:
    plan = PLAN.partition("[[method]]")[0].replace(', "nowhere"', "").replace("epochs = 2", "epochs = 1")
    lora = '[[method]]\nname = "{0}"\nadapter = "lora"\nreducer = "{0}"\n'
    (tmp_path / "plan.toml").write_text(
        plan + lora.format("none") + lora.format("bsm") + "[method.reducer_arguments]\nblock = 0\n"
    )
    assert main(command(tmp_path / "plan.toml", tmp_path / "table.csv", backbone_file)) == 0
    full, reduced = read_rows(tmp_path / "table.csv")
    assert full.memory_bytes is not None
    assert reduced.memory_bytes is not None
    assert 0 < reduced.memory_bytes < full.memory_bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.toml", "table.csv"]


def test_a_run_that_fails_does_not_stop_the_others(
    swept: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = by_cell(swept / "table.csv")
    assert "training diverged" in rows["digits", "Too fast"].error
    assert f"{swept}/nowhere" in rows[str(swept / "nowhere"), "Linear"].error
    before = (swept / "table.csv").read_text()
    assert main(command(swept / "plan.toml", swept / "table.csv", backbone_file)) == 1
    assert (swept / "table.csv").read_text() == before
    assert "0 done, 4 failed, 2 were there" in capsys.readouterr().out


@contextlib.contextmanager
def address_space(more: int) -> Iterator[None]:
    """This process gets no more than so many bytes besides those that it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_a_method_that_cannot_be_held_does_not_stop_the_others(backbone_file: Path, tmp_path: Path) -> None:
    method = '[[method]]\nname = "{0}"\nadapter_arguments = {{ {0} }}\n'
    arguments = ("dim = 100_000", "dim = 4")  # 5 GB a step take 100,000
    plan = PLAN.partition("[[method]]")[0].replace(', "nowhere"', "").replace("= 100", "= 800")
    (tmp_path / "plan.toml").write_text(plan + "".join(map(method.format, arguments)))
    with address_space(2**30):
        assert main(command(tmp_path / "plan.toml", tmp_path / "table.csv", backbone_file)) == 1
    wide, narrow = [row.error for row in read_rows(tmp_path / "table.csv")]
    assert "can't allocate memory" in wide
    assert "make no model" not in wide  # it is trained
    assert not narrow


def test_a_run_that_is_done_has_no_failed_row_once_its_data_is_back(backbone_file: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    for index in range(20):
        picture(own / "ab"[index % 2] / f"{index}.png", 10 * index)
    plan = with_empty(tmp_path).partition("[[method]]")[0].replace("= 100", "= 4").replace('"digits"', f'"{own}"')
    (tmp_path / "plan.toml").write_text(plan + '[[method]]\nname = "Linear"\nadapter = "none"\nreducer = "none"\n')
    again, output = command(tmp_path / "plan.toml", tmp_path / "table.csv", backbone_file), tmp_path / "table.csv"
    assert main(again) == 1
    before = output.read_text()
    (own / "a").rename(tmp_path / "away")
    assert main(again) == 1
    assert [bool(row.error) for row in read_rows(output) if row.data == str(own)] == [False, True]
    (tmp_path / "away").rename(own / "a")
    assert main(again) == 1
    assert output.read_text() == before


def test_the_runs_are_listed(swept: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(swept.rglob("*"))
    assert main(command(swept / "plan.toml", swept / "table.csv", backbone_file, "--list")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("done") for line in lines[1:]] == [True, True, False, False, False, False]
    assert main(command(swept / "plan.toml", swept / "other.csv", backbone_file, "--list")) == 0
    assert "done" not in capsys.readouterr().out
    assert sorted(swept.rglob("*")) == before


def test_another_recipe_is_another_run(swept: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = swept / "other.toml"
    other.write_text(with_empty(swept).replace("lr = 0.01", "lr = 0.02"))
    assert main(command(other, swept / "table.csv", backbone_file, "--list")) == 0
    assert "done" not in capsys.readouterr().out


def test_a_killed_sweep_ends_like_an_unbroken_one(backbone_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    recipe = "recipe = { epochs = 6, warmup_epochs = 0, lr = 0.01, batch_size = 50, validate_every = 2 }\n"
    method = '[[method]]\nname = "{0}"\nadapter = "{0}"\nreducer_arguments.block = 0\n'
    plan.write_text('data = ["digits"]\nseeds = [0]\n' + recipe + method.format("adaptformer") + method.format("ssf"))
    whole, broken = tmp_path / "whole.csv", tmp_path / "broken.csv"
    assert main(command(plan, whole, backbone_file)) == 0
    assert killed(command(plan, broken, backbone_file), after=random.uniform(0, 0.5))
    killed(command(plan, broken, backbone_file), after=random.uniform(0, 3))
    assert main(command(plan, broken, backbone_file)) == 0
    assert without_times(broken) == without_times(whole)
    assert left(tmp_path) == ["broken.csv", "plan.toml", "whole.csv"]


def killed(arguments: list[str], after: float) -> bool:
    """Starts a command and kills it so many seconds after it has begun its work; False if it was done before."""
    process = started(arguments)
    assert process.stdout is not None
    process.stdout.readline()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=after)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def test_a_file_that_is_no_table_is_left_alone(swept: Path, backbone_file: Path, tmp_path: Path) -> None:
    table = (swept / "table.csv").read_text()
    for content in (
        "a,b\n1,2\n", table.replace(",3,", ",three,"), table[: len(table) // 2], table[:-1] + ",1\n",
        table[:-1] + "x" * csv.field_size_limit() + "\n", "x" * csv.field_size_limit() + table,
    ):  # fmt: skip
        (tmp_path / "other.csv").write_text(content)
        assert main(command(swept / "plan.toml", tmp_path / "other.csv", backbone_file)) == 2
        assert (tmp_path / "other.csv").read_text() == content


def test_a_table_under_another_name_is_refused(
    swept: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(swept / "plan.toml", swept / "table.runs", backbone_file)) == 2
    assert "table.runs: a sweep's table has a name that ends in .csv" in capsys.readouterr().err
