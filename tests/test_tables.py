"""Which runs of a sweep are compared in its tables: those of one recipe, each once."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plans import PLAN, command
from test_results import ROW

from benchmarks.summary import Results, read_tables
from benchmarks.tables import markdown
from fpet.cli import main
from fpet.sweeps.results import COLUMNS, add_row, read_rows

pytestmark = pytest.mark.usefixtures("one_thread")

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
# What of a recipe a table may lack, and other values than those of FULL.
OTHERS: dict[str, object] = {
    "warmup_epochs": 2, "warmup_lr": 0.1, "min_lr": 0.2, "weight_decay": 0.3, "drop_path": 0.4, "hflip": 0.5,
    "crop_scale": 0.6, "class_weights": "balanced", "validate_every": 6, "search_scale": "[1.0]",
}  # fmt: skip
FULL = dataclasses.replace(
    ROW, memory="kept", test_accuracy=0.5, parameters=1, tokens_in=17, tokens_out=17, warmup_epochs=1, warmup_lr=1e-6,
    min_lr=1e-5, weight_decay=1e-4, drop_path=0.1, hflip=0.0, crop_scale=1.0, class_weights="none",
    validate_every=5, search_scale="[]",
)  # fmt: skip
REDUCED = dataclasses.replace(FULL, run="2", method="FPET", reducer="bdm", test_accuracy=0.4)
UNRECORDED = dataclasses.replace(
    FULL, **{name: item.default for item in dataclasses.fields(FULL) if (name := item.name) in OTHERS}
)


def tables(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.tables", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_runs_of_one_recipe_are_compared() -> None:
    assert Results([FULL, REDUCED]).without(REDUCED) is FULL


@pytest.mark.parametrize(("name", "value"), [*OTHERS.items(), ("scale", 1.0)])
def test_runs_of_two_recipes_are_not_compared(name: str, value: object) -> None:
    other = dataclasses.replace(REDUCED, **{name: value})
    assert Results([FULL, other]).without(other) is None
    assert Results([FULL, other]).without(dataclasses.replace(other, **{name: getattr(FULL, name)})) is FULL


def test_the_conditions_say_the_recipe() -> None:
    page = markdown([FULL, dataclasses.replace(REDUCED, drop_path=0.0)])
    assert "- drop path: 0.1, 0.0\n" in page
    assert "- weight decay: 0.0001\n" in page
    assert not {"weight decay", "hflip", "class weights"} & set(re.findall(r"- (.*):", markdown([UNRECORDED])))
    assert "- hflip: 0.0, 0.5\n" in markdown([FULL, dataclasses.replace(REDUCED, hflip=0.5)])


def test_a_row_says_its_recipe(backbone_file: Path, tmp_path: Path) -> None:
    plan = PLAN.replace(', "nowhere"', "").partition('[[method]]\nname = "Too fast"')[0]
    (tmp_path / "plan.toml").write_text(
        plan.replace("epochs = 1 }", "epochs = 1, drop_path = 0.3, hflip = 0.5, min_lr = 0 }")
    )
    assert main(command(tmp_path / "plan.toml", tmp_path / "table.csv", backbone_file)) == 0
    _, row = read_rows(tmp_path / "table.csv")
    assert [getattr(row, name) for name in OTHERS] == [0, 1e-6, 0, 1e-4, 0.3, 0.5, 1.0, "none", 5, "[0.5, 2.0]"]


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.csv")), ids=lambda path: path.stem)
def test_committed_tables_have_all_columns_and_stay_as_they_are_when_a_row_is_added(path: Path, tmp_path: Path) -> None:
    before = path.read_bytes()
    assert before.decode().partition("\n")[0] == ",".join(COLUMNS)
    copy = tmp_path / path.name
    copy.write_bytes(before)
    add_row(copy, FULL)
    assert copy.read_bytes().startswith(before)
    assert read_rows(copy)[-1] == FULL


def test_two_runs_of_one_cell_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    add_row(one, FULL)
    add_row(other, dataclasses.replace(FULL, run="another", epochs=2))
    said = (
        "two runs, 1 and another, are of digits, Linear, seed 0: tables are of one plan; delete the row of one of them"
    )
    done = tables(one, other)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{said}\n")
    add_row(other, dataclasses.replace(FULL, run="another", error="no"))
    assert len(read_tables([one, other])) == 2
