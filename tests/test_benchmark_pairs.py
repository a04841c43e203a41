"""What token reduction changes, by the tables that are committed: pairs, their mean and its standard error."""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence

import pytest
from stated import RESULTS, with_error

from benchmarks import pairs
from benchmarks import tables as accuracies
from benchmarks.summary import read_tables
from fpet.backbone import load_backbone
from fpet.embedded import default_backbone
from fpet.sweeps.jobs import jobs
from fpet.sweeps.plan import load_plan
from fpet.sweeps.results import Row


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Runs of two adapters without reduction and with FPET, six tasks, three seeds."""
    tables = read_tables([RESULTS / "short.csv", RESULTS / "short-seeds.csv"])
    return [row for row in tables if row.reducer in ("none", "bdm")]


def test_the_mean_over_pairs_is_the_one_on_the_page(rows: list[Row]) -> None:
    page = (RESULTS / "short-seeds.md").read_text().replace("\n", " ")
    assert "thirty-six pairs of three seeds FPET changes -0.67 points, with a standard error of 0.25" in page
    text = pairs.markdown(rows)
    assert "| all | 36 | -0.67 (0.25) | -0.31 (0.24) |" in text
    assert "| FPET-AdaptFormer | 18 | -0.69 (0.33) |" in text
    assert "| fashion-mnist | 6 | +0.27 (0.12) |" in text
    assert "| seed 1 | 12 | -1.37 (0.60) |" in text
    assert "| FPET-LoRA | emoji | 1 | 54.21 | 48.13 | 49.07 | -6.07 |" in text
    assert "- epochs: 10\n" in text


@pytest.mark.parametrize("name", ["pairs", "pairs-others", "pairs-longer", "methods-short"])
def test_the_pages_of_the_shipped_backbone_are_what_the_command_prints(name: str) -> None:
    assert pairs.markdown(read_tables([RESULTS / f"{name}.csv"])) in (RESULTS / f"{name}.md").read_text()


def mean_of(found: Sequence[pairs.Pair]) -> str:
    return with_error([100 * pair.difference for pair in found])


def test_the_page_of_the_methods_says_what_its_table_has() -> None:
    page, rows = (RESULTS / "methods-short.md").read_text(), read_tables([RESULTS / "methods-short.csv"])
    assert accuracies.markdown(rows).partition("## Cost")[0] in page
    assert len(rows) == 17 * 6
    assert f"the 1-bit adapters and RepAdapter, {mean_of(of_the_readme('methods-short'))}:" in page


def by_tasks(found: Sequence[pairs.Pair]) -> str:
    """As `mean_of`, where each task counts once, whatever its number of pairs."""
    tasks = defaultdict(list)
    for pair in found:
        tasks[pair.reduced.data].append(100 * pair.difference)
    assert len(tasks) == 13
    return with_error([statistics.fmean(each) for each in tasks.values()])


def of_the_readme(table: str) -> list[pairs.Pair]:
    """The pairs of a table that the README counts, each of which is counted there once."""
    elsewhere = ("FPET-AdaptFormer", "FPET-LoRA") if table == "methods-short" else ()
    return [
        pair
        for pair in pairs.pairs_of(read_tables([RESULTS / f"{table}.csv"]))
        if pair.reduced.method not in elsewhere
        and (pair.reduced.reducer, json.loads(pair.reduced.reducer_arguments)) == ("bdm", {"block": 6})
    ]


def test_the_page_of_the_other_tasks_says_what_the_tables_have() -> None:
    page = (RESULTS / "pairs-others.md").read_text().replace("\n", " ")
    others = of_the_readme("pairs-others")
    assert f"Over these fourteen pairs FPET changes {mean_of(others)} points" in page
    one_seed = [*others, *(pair for pair in of_the_readme("pairs") if pair.reduced.seed == 0)]
    assert len(one_seed) == 26
    assert f"have {mean_of(one_seed)} over twenty-six pairs, and {by_tasks(one_seed)} as a mean over tasks" in page


def test_the_page_of_thirty_epochs_says_what_its_table_has() -> None:
    page = (RESULTS / "pairs-longer.md").read_text().replace("\n", " ")
    found = pairs.pairs_of(read_tables([RESULTS / "pairs-longer.csv"]))
    mean, error = mean_of(found).split()
    assert f"these four pairs FPET changes {mean} points, with a standard error of {error.strip('()')}:" in page
    validation = [
        100 * ((pair.reduced.validation_accuracy or 0) - (pair.without.validation_accuracy or 0)) for pair in found
    ]
    assert f"FPET changes {with_error(validation)}." in page
    others = (RESULTS / "pairs-others.md").read_text().replace("\n", " ")
    elevation, distance = (
        [f"{100 * pair.difference:+.2f}" for pair in found if pair.reduced.data == data]
        for data in ("scene-elevation", "scene-distance")
    )
    said = f"{' and '.join(elevation)} on scene-elevation, and {' and '.join(distance)} on scene-distance"
    assert f"AdaptFormer has {said} ([pairs-longer.md]" in others


def test_the_readme_counts_each_pair_once() -> None:
    readme = (RESULTS.parent.parent / "README.md").read_text()
    index = (RESULTS / "README.md").read_text()
    found = {table: of_the_readme(table) for table in ("pairs", "pairs-others", "methods-short", "paper-pairs")}
    again = {"blocks-h200": of_the_readme("blocks-h200")}  # tasks, seeds and recipe are those of the first table
    for table, own in (found | again).items():
        row = next(line for line in readme.splitlines() if f"(benchmarks/results/{table}.md)) |" in line)
        assert row.startswith(f"| {len(own)} | ")
        assert row.endswith(f" | {mean_of(own)} |")
    every = [pair for own in found.values() for pair in own]
    assert f"| {len(every)} | all of these | {mean_of(every)} |" in readme
    page = (RESULTS / "pairs.md").read_text().replace("\n", " ")
    assert f"the {len(every)} that differ in method, task, seed or recipe have {mean_of(every)}" in page
    of_pairs = [*found["pairs"], *found["pairs-others"]]
    adaptformer, lora = (
        [pair for pair in of_pairs if pair.reduced.adapter == adapter] for adapter in ("adaptformer", "lora")
    )
    each_pair = f"AdaptFormer has {mean_of(adaptformer)} in {len(adaptformer)} pairs, and LoRA {mean_of(lora)}"
    assert f"Over all of them {each_pair}, where" in page
    each_once = f"{by_tasks(of_pairs)}: AdaptFormer {by_tasks(adaptformer)}, LoRA {by_tasks(lora)}"
    assert f"the first two rows have {each_once}." in readme.replace("\n", " ")
    assert f"both have {each_once}." in page
    assert f"each of which counts once, {each_once} |" in index
    first = {(pair.reduced.data, pair.reduced.adapter, pair.reduced.seed) for pair in found["pairs"]}
    assert {(pair.reduced.data, pair.reduced.adapter, pair.reduced.seed) for pair in again["blocks-h200"]} <= first


def test_the_page_of_pairs_counts_what_was_trained_again_and_rounded_otherwise() -> None:
    def run(pair: pairs.Pair) -> tuple[object, ...]:
        return pair.reduced.data, pair.reduced.adapter, pair.reduced.seed

    def outcome(pair: pairs.Pair) -> tuple[object, ...]:
        rows = pair.without, pair.reduced
        return tuple((row.validation_accuracy, row.test_accuracy, row.test_accuracy_unreduced) for row in rows)

    first = {run(pair): outcome(pair) for pair in of_the_readme("pairs")}
    tables = ["blocks-tasks", "methods-short", "reductions-sprites"]
    differing = {
        (run(pair), outcome(pair)): pair  # some stand in two tables
        for pair in itertools.chain(*(pairs.pairs_of(read_tables([RESULTS / f"{name}.csv"])) for name in tables))
        if pair.reduced.method in ("FPET-AdaptFormer", "FPET-LoRA")
        and json.loads(pair.reduced.reducer_arguments) == {"block": 6}
        and outcome(pair) != first[run(pair)]
    }
    again = list(differing.values())
    page = (RESULTS / "pairs.md").read_text().replace("\n", " ")
    assert f"{len(again)} on CPU cores, where another machine or version rounded otherwise, {mean_of(again)}" in page
    tables = ["pairs", "pairs-others", "methods-short", "paper-pairs", "blocks-h200"]
    every = [*again, *itertools.chain(*map(of_the_readme, tables))]
    assert f"with all of these the {len(every)} have {mean_of(every)}." in page


def test_the_readme_counts_the_pairs_of_other_backbones(rows: list[Row]) -> None:
    readme = (RESULTS.parent.parent / "README.md").read_text()
    assert f"([tables](benchmarks/results/short-seeds.md)) | {mean_of(pairs.pairs_of(rows))} |" in readme
    small = [one for one in pairs.pairs_of(read_tables([RESULTS / "small.csv"])) if one.reduced.reducer == "bdm"]
    own, lora = ([one for one in small if one.reduced.adapter == kind] for kind in ("adaptformer", "lora"))
    told = " and ".join(
        f"{name} ({count}: {mean_of(each).partition(' ')[0]})"
        for name, count, each in (("AdaptFormer", f"{len(own)} pairs", own), ("LoRA", len(lora), lora))
    )
    assert f"| {len(small)} | {told} on a ViT-S" in readme
    assert f"([table](benchmarks/results/small.md)) | {mean_of(small)} |" in readme


def test_every_run_with_reduction_is_beside_its_own_without(rows: list[Row]) -> None:
    found = pairs.pairs_of(rows)
    assert [pair.reduced.seed for pair in found] == 12 * [0] + 12 * [1] + 12 * [2]
    for pair in found:
        assert pair.without.reducer == "none"
        assert (pair.without.data, pair.without.seed) == (pair.reduced.data, pair.reduced.seed)
        assert pair.without.adapter == pair.reduced.adapter


def test_one_pair_has_no_error_and_one_kind_no_line(rows: list[Row]) -> None:
    few = [row for row in rows if (row.data, row.adapter, row.seed) == ("emoji", "lora", 1)]
    table = pairs.markdown(few).partition("## Pairs")[0]
    assert "| all | 1 | -6.07 | -5.14 |" in table
    assert "FPET-LoRA" not in table
    assert "seed" not in table


def test_tables_without_a_pair_are_refused(rows: list[Row]) -> None:
    with pytest.raises(SystemExit, match="no run with token reduction has one beside it"):
        pairs.markdown([row for row in rows if row.reducer == "bdm"])


def test_a_run_without_its_accuracy_is_refused(rows: list[Row]) -> None:
    damaged = [dataclasses.replace(row, test_accuracy=None) if row.reducer == "bdm" else row for row in rows]
    with pytest.raises(SystemExit, match="no accuracy of the test"):
        pairs.markdown(damaged)


def test_committed_runs_are_those_that_their_plan_would_make() -> None:
    """So that a sweep of the plan goes on with the table."""
    plan = load_plan(RESULTS.parent / "plans" / "pairs-others.toml")
    digits = dataclasses.replace(plan, data=tuple(one for one in plan.data if one.source == "digits"))
    runs = jobs(digits, load_backbone(default_backbone()), None)
    keys = {(run.method.name, run.method.recipe.seed): run.key for run in runs}
    rows = [row for row in read_tables([RESULTS / "pairs-others.csv"]) if row.data == "digits"]
    assert keys == {(row.method, row.seed): row.run for row in rows}
