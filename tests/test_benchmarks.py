"""The tables of benchmarks/: their plans can be trained, and their numbers are means of what can be compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small import ARCHITECTURE

from benchmarks import blocks, tables, training_cost
from benchmarks.summary import Results
from fpet.adapters import build_adapter
from fpet.data import SOURCES
from fpet.methods import VIT_BASE
from fpet.plan import load_plan
from fpet.reducers import build_reducer
from fpet.results import Row
from fpet.tokens import Layout
from fpet.untrained import half_way
from fpet.vit import refuse_misfit

PLANS = sorted((Path(__file__).parent.parent / "benchmarks" / "plans").glob("*.toml"))

BASE = Row(
    run="", data="digits", method="", seed=0, test_accuracy=0.5, test_accuracy_unreduced=0.5, epochs=1, parameters=10,
    task_bytes=100, gmacs=2.0, tokens_in=17, tokens_out=17, training_seconds=4.0, epoch_seconds=4.0, memory_bytes=100,
    memory="kept", adapter="lora", adapter_arguments="{}", reducer="none", reducer_arguments="{}", head_bits=32,
    batch_size=8, lr=0.1, precision="float32", train_images=9, backbone="small", device="cpu", threads=1, fpet="0",
    torch="2",
)  # fmt: skip


def row(method: str, data: str, seed: int, accuracy: float, block: int | None = None, **other: object) -> Row:
    merged = {} if block is None else {"reducer": "bdm", "reducer_arguments": f'{{"block": {block}}}', "tokens_out": 9}
    values = {"method": method, "data": data, "seed": seed, "test_accuracy": accuracy, **merged, **other}
    return dataclasses.replace(BASE, run=f"{method} {data} {seed}", **values)


ROWS = [
    *(row("LoRA", data, seed, 0.80 + 0.02 * seed) for data in ("digits", "emoji") for seed in (0, 1)),
    row("FPET", "digits", 0, 0.79, block=6, epoch_seconds=3.0, memory_bytes=80),
    row("FPET", "digits", 1, 0.81, block=6, epoch_seconds=3.0, memory_bytes=80),
    row("FPET", "emoji", 0, 0.80, block=6, epoch_seconds=3.0, memory_bytes=80),
    row("FPET", "emoji", 1, 0.82, block=6, epoch_seconds=2.0, memory_bytes=80),
    row("early", "digits", 0, 0.70, block=0),
    row("early", "emoji", 0, 0.60, block=0, adapter="ssf"),
    row("partial", "digits", 0, 0.99, block=2),
]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_can_be_trained(path: Path) -> None:
    plan = load_plan(path)
    assert set(plan.data) <= SOURCES.keys()
    for method in plan.methods:
        adapter = build_adapter(method.adapter.kind, VIT_BASE, method.adapter.arguments)
        reducer = half_way(method.reducer, VIT_BASE.depth)
        layout = Layout.of(VIT_BASE, adapter.num_prompts)
        refuse_misfit(adapter, build_reducer(reducer.kind, VIT_BASE, layout, reducer.arguments), VIT_BASE)


def test_means_are_over_all_tasks_and_spreads_over_seeds() -> None:
    mean = Results(ROWS).over_tasks("FPET", lambda row: row.test_accuracy)
    assert mean is not None
    assert mean.mean == pytest.approx((0.795 + 0.815) / 2)
    assert mean.deviation == pytest.approx(0.02 / 2**0.5)
    assert Results(ROWS).over_tasks("partial", lambda row: row.test_accuracy) is None


def test_ratios_are_of_runs_that_differ_in_the_reduction_alone() -> None:
    results = Results(ROWS)
    assert results.ratio("FPET", lambda row: row.epoch_seconds) == pytest.approx(0.75)
    assert results.ratio("FPET", lambda row: row.memory_bytes) == pytest.approx(0.8)
    assert results.ratio("LoRA", lambda row: row.epoch_seconds) is None
    early = results.of("early")
    assert results.without(early[0]) is ROWS[0]
    assert results.without(early[1]) is None
    elsewhere = dataclasses.replace(ROWS[4], device="another machine")
    assert Results([*ROWS[:4], elsewhere]).without(elsewhere) is None


def test_two_runs_of_one_cell_are_refused() -> None:
    again = dataclasses.replace(ROWS[0], run="another recipe", epochs=2)
    with pytest.raises(ValueError, match="two runs of"):
        Results([*ROWS, again])


def test_the_tables_state_what_was_measured() -> None:
    failed = dataclasses.replace(BASE, method="broken", error="no data")
    page = tables.markdown([*ROWS, failed])
    assert "| FPET | 80.00 ± 1.41 | 81.00 ± 1.41 | 50.00 ± 0.00 | 80.50 ± 1.41 |" in page
    assert "| FPET | 10 | 100 | 17 → 9 | 2.000 | 0.750 | 0.800 | -0.50 ± 0.00 |" in page
    assert "mean ± standard deviation over 2 seeds" in page
    assert "- failed: digits, broken, seed 0: no data" in page


def test_the_curve_has_a_point_a_block(tmp_path: Path) -> None:
    curves, baseline = blocks.curves(Results(ROWS))
    assert {block: spread.mean for block, spread in curves["bdm"].items()} == pytest.approx({6: 0.805, 0: 0.65})
    assert baseline is not None
    assert "| bdm | 65.00 | 80.50 ± 1.41 |" in blocks.markdown(ROWS)
    pytest.importorskip("matplotlib")
    blocks.plot(ROWS, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_training_cost_is_measured_on_real_steps(capsys: pytest.CaptureFixture[str]) -> None:
    shape = "img_size=64,patch_size=8,embed_dim=48,depth=6,num_heads=3"
    small = ["--architecture", ARCHITECTURE, "--architecture-arguments", shape, "--reducer-arguments", "block=1"]
    training_cost.main(training_cost.parser().parse_args([*small, "--batch-size", "4", "--repeats", "2"]))
    _, _, full, reduced, *_ = capsys.readouterr().out.splitlines()
    assert full.startswith("| none | 65 |")
    assert reduced.startswith("| bdm | 33 |")
    assert 0 < float(reduced.split("|")[6]) < 1
