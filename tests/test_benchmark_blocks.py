"""Token reductions beside each other, by the tables that are committed: their pages say what these come to."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict

import pytest
from stated import RESULTS, with_error

from benchmarks import blocks, pairs
from benchmarks import tables as accuracies
from benchmarks.summary import read_tables


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("blocks-h200", ["hebrew", "sprites-location", "thai"]),
        ("blocks-tasks", ["hebrew", "thai", "sprites-location", "scene-count", "emoji"]),
    ],
)
def test_the_pages_of_blocks_are_what_the_commands_print(name: str, data: list[str]) -> None:
    page, rows = (RESULTS / f"{name}.md").read_text(), read_tables([RESULTS / f"{name}.csv"])
    assert pairs.markdown(rows).partition("## Pairs")[0] in page
    assert blocks.markdown(blocks.of_data(rows, data)).partition("## Cond")[0] in page


def test_the_page_of_the_papers_table_3_is_what_the_commands_print_and_its_steps_add_up() -> None:
    page, rows = (RESULTS / "reductions-tasks.md").read_text(), read_tables([RESULTS / "reductions-tasks.csv"])
    assert pairs.markdown(rows).partition("## Pairs")[0] in page
    assert accuracies.markdown(rows).partition("## Cost")[0] in page
    accuracy = {(row.method, row.data): 100 * (row.test_accuracy or 0) for row in rows}
    steps = {
        "a checkerboard, to BSM": ("BSM-AdaptFormer", "BSM-AdaptFormer, checkerboard"),
        "refined keys without gradient stop, to the checkerboard": (
            "BSM-AdaptFormer, checkerboard",
            "FPET-AdaptFormer, no gradient stop",
        ),
        "the gradient stop, to refined keys": ("FPET-AdaptFormer, no gradient stop", "FPET-AdaptFormer"),
    }
    for step, (before, after) in steps.items():
        each = [accuracy[after, data] - accuracy[before, data] for data in dict.fromkeys(row.data for row in rows)]
        changes = [f"{one:+.2f}" for one in each] + [with_error(each)]
        assert f"| {step} | {' | '.join(changes)} |" in page


def test_the_means_over_both_machines_are_those_of_their_pairs() -> None:
    page = (RESULTS / "blocks-tasks.md").read_text()
    tables = [read_tables([RESULTS / f"{name}.csv"]) for name in ("blocks-h200", "blocks-tasks")]
    differences = defaultdict(list)
    for pair in itertools.chain(*map(pairs.pairs_of, tables)):
        reduced = pair.reduced
        differences[reduced.reducer, json.loads(reduced.reducer_arguments)["block"]].append(100 * pair.difference)
    names = {"bdm": "FPET", "bsm": "BSM", "average-pool": "average pool", "max-pool": "max pool"}
    for reducer, name in names.items():
        each = [differences[reducer, block] for block in (2, 4, 6)]
        assert [len(one) for one in each] == [11, 11, 13]
        cells = list(map(with_error, each))
        assert f"| {name} | {' | '.join(cells)} |" in page


def test_what_fpet_has_more_than_each_other_is_that_of_the_same_task_and_seed() -> None:
    page = (RESULTS / "blocks-tasks.md").read_text()
    differences = defaultdict(list)
    for name in ("blocks-h200", "blocks-tasks"):
        accuracy = {
            (row.data, row.seed, row.reducer, json.loads(row.reducer_arguments).get("block")): row.test_accuracy or 0
            for row in read_tables([RESULTS / f"{name}.csv"])
        }
        for (data, seed, reducer, block), value in accuracy.items():
            if reducer not in ("none", "bdm"):
                differences[reducer, block].append(100 * (accuracy[data, seed, "bdm", block] - value))
    for reducer, name in {"bsm": "BSM", "average-pool": "average pool", "max-pool": "max pool"}.items():
        each = [differences[reducer, block] for block in (2, 4, 6)]
        cells = list(map(with_error, each))
        assert f"| {name} | {' | '.join(cells)} |" in page.partition("| FPET, less |")[2]
    readme = (RESULTS.parent.parent / "README.md").read_text().replace("\n", " ")
    bsm, average = (with_error(differences[reducer, 6]).lstrip("+") for reducer in ("bsm", "average-pool"))
    told = f"FPET is ahead of BSM by {bsm.replace(' ', ' points ')} and of average pooling by {average} over"
    assert told in readme
