"""The tables of benchmarks/: their plans can be trained, and their numbers are means of what can be compared."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections import Counter
from pathlib import Path

import pytest
from serving import Serving
from starlette.testclient import TestClient

from benchmarks import blocks, overload, tables
from benchmarks.load import Answer, Load, load, offer, post
from benchmarks.markdown import table
from benchmarks.peers import rows, ways
from benchmarks.peers.__main__ import check
from benchmarks.peers.plain import create_app
from benchmarks.peers.prepare import prepare
from benchmarks.pictures import pictures
from benchmarks.rounds import in_turn
from benchmarks.servers import serving as serving_process
from benchmarks.servers import state
from benchmarks.summary import Results, read_tables
from fpet.adapters import build_adapter
from fpet.data import SOURCES
from fpet.data.vtab import VTAB_1K
from fpet.methods import VIT_BASE
from fpet.reducers import build_reducer
from fpet.sweeps.plan import load_plan
from fpet.sweeps.results import COLUMNS, Row
from fpet.tokens import Layout
from fpet.untrained import at_middle_block
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
    row("early", "emoji", 0, 0.60, block=0),
    row("partial", "digits", 0, 0.99, block=2),
]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_can_be_trained(path: Path) -> None:
    plan = load_plan(path)
    assert {planned.source for planned in plan.data} <= SOURCES.keys()
    for method in plan.methods:
        adapter = build_adapter(method.adapter.kind, VIT_BASE, method.adapter.arguments)
        reducer = at_middle_block(method.reducer, VIT_BASE.depth)
        layout = Layout.of(VIT_BASE, adapter.num_prompts)
        refuse_misfit(adapter, build_reducer(reducer.kind, VIT_BASE, layout, reducer.arguments), VIT_BASE)


def test_means_are_over_all_tasks_and_spreads_over_seeds() -> None:
    mean = Results(ROWS).over_tasks("FPET", lambda row: row.test_accuracy)
    assert mean is not None
    assert mean.mean == pytest.approx((0.795 + 0.815) / 2)
    assert mean.deviation == pytest.approx(0.02 / 2**0.5)
    assert Results(ROWS).over_tasks("partial", lambda row: row.test_accuracy) is None


def test_the_mean_over_tasks_is_that_of_the_groups_as_in_the_paper() -> None:
    # AdaptFormer's row of table 2, in the order of the names; its average over three groups, 76.2, is not 73.9.
    printed = [72.0, 92.7, 70.2, 99.3, 91.0, 87.5, 54.8, 87.4, 95.2, 85.2, 75.2]
    printed += [83.6, 62.6, 52.1, 81.0, 86.2, 53.1, 34.5, 40.3]
    rows = [row("A", f"vtab-1k/{name}", 0, value) for name, value in zip(VTAB_1K, printed, strict=True)]
    mean = Results(rows).over_tasks("A", lambda row: row.test_accuracy)
    assert mean is not None
    assert round(mean.mean, 1) == 76.2
    several = [("emoji", 0.9), ("clip-art", 0.7), ("digits", 0.4), ("lists/pets of mine", 0.3)]  # the last of no group
    several.append(("my lists/dtd shots=4", 0.8))
    mean = Results([row("A", data, 0, value) for data, value in several]).over_tasks("A", lambda row: row.test_accuracy)
    assert mean is not None
    assert mean.mean == pytest.approx((0.8 + 0.4 + 0.3) / 3)


def test_ratios_are_of_runs_that_differ_in_the_reduction_alone() -> None:
    results = Results(ROWS)
    assert results.ratio("FPET", lambda row: row.epoch_seconds) == pytest.approx(0.75)
    assert results.ratio("FPET", lambda row: row.memory_bytes) == pytest.approx(0.8)
    assert results.ratio("LoRA", lambda row: row.epoch_seconds) is None
    early = results.of("early")
    assert results.without(early[0]) is ROWS[0]
    assert results.without(dataclasses.replace(early[1], adapter="ssf")) is None
    elsewhere = dataclasses.replace(ROWS[4], device="another machine")
    assert Results([*ROWS[:4], elsewhere]).without(elsewhere) is None


def test_a_bar_in_a_name_ends_no_column() -> None:
    assert table(["method"], [["a|b"]]).splitlines()[2] == r"| a\|b |"


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    empty, foreign = tmp_path / "empty.csv", tmp_path / "foreign.csv"
    empty.write_text(",".join(COLUMNS))
    foreign.write_text("a,b\n")
    for path in (empty, foreign, tmp_path / "nothing.csv"):
        with pytest.raises(SystemExit, match=path.name):
            read_tables([path])


def test_the_tables_state_what_was_measured() -> None:
    failed = dataclasses.replace(BASE, method="broken", error="no data")
    page = tables.markdown([*ROWS, failed])
    assert "| FPET | 80.00 ± 1.41 | 81.00 ± 1.41 | 50.00 ± 0.00 | 80.50 ± 1.41 |" in page
    assert "| FPET | 10 | 100 | 17 → 9 | 2.000 | 0.750 | 0.800 | -0.50 ± 0.00 |" in page
    assert "mean ± standard deviation over 2 seeds" in page
    assert (
        "| early | 70.00 (1 of 2 seeds) | 60.00 (1 of 2 seeds) | 50.00 (1 of 2 seeds) | 65.00 (1 of 2 seeds) |" in page
    )
    assert "- failed: digits, broken, seed 0: no data" in page


def test_the_curve_has_a_point_a_block(tmp_path: Path) -> None:
    curves, baseline = blocks.curves(Results(ROWS))
    assert {block: spread.mean for block, spread in curves["bdm"].items()} == pytest.approx({6: 0.805, 0: 0.65})
    assert baseline is not None
    assert "| bdm | 65.00 (1 of 2 seeds) | 80.50 ± 1.41 |" in blocks.markdown(ROWS)
    pytest.importorskip("matplotlib")
    blocks.plot(ROWS, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_some_data_leave_the_others_out() -> None:
    curve = blocks.curves(Results(blocks.of_data(ROWS, ["digits"])))[0]["bdm"]
    assert {block: spread.mean for block, spread in curve.items()} == pytest.approx({6: 0.80, 0: 0.70, 2: 0.99})
    with pytest.raises(SystemExit, match="no row of nothing, none"):
        blocks.of_data(ROWS, ["nothing", "digits", "none"])


def test_curves_of_several_adapters_are_refused() -> None:
    other = dataclasses.replace(ROWS[0], method="other", adapter="ssf")
    with pytest.raises(SystemExit, match="one adapter, and there are lora"):
        blocks.markdown([*ROWS, other])


def test_curves_of_two_methods_in_one_place_are_refused() -> None:
    for other in (
        dataclasses.replace(ROWS[0], method="1 bit", head_bits=1),
        dataclasses.replace(ROWS[4], method="1 bit", head_bits=1),
    ):
        rows = [one for one in ROWS if one.data == "digits" and one.seed == 0]
        with pytest.raises(SystemExit, match="nothing tells 1 bit from another method"):
            blocks.markdown([*rows, other])


def test_a_reduction_at_several_blocks_is_no_point_of_a_curve() -> None:
    both = dataclasses.replace(ROWS[4], method="both", reducer_arguments='{"block": [2, 6]}')
    rows = [one for one in ROWS if one.data == "digits" and one.seed == 0]
    assert blocks.curves(Results([*rows, both])) == blocks.curves(Results(rows))


def test_an_adapters_arguments_may_be_written_in_any_way() -> None:
    plain = dataclasses.replace(BASE, adapter_arguments='{"dim": 4, "scale": 2.0}')
    for written in ('{"scale": 2.0, "dim": 4}', '{"dim": 4, "scale": 2}', '{"dim": 4, "scale": 2.0, "bits": 32}'):
        reduced = row("FPET", "digits", 0, 0.4, block=6, adapter_arguments=written)
        assert Results([plain, reduced]).without(reduced) is plain
    other = row("FPET", "digits", 0, 0.4, block=6, adapter_arguments='{"dim": 8, "scale": 2.0}')
    assert Results([plain, other]).without(other) is None


def test_a_load_waits_for_its_answers_and_an_offer_does_not(service: Serving) -> None:
    def request() -> bytes:
        return post(service.address[1], "/v1/tasks/digits/classify", pictures()[0])

    closed = asyncio.run(load(service.address[1], 2, 0.2, request)).require_success()
    assert closed.rate == pytest.approx(len(closed.answers) / closed.seconds)
    assert sum(closed.latencies) <= 2 * closed.seconds
    offered = asyncio.run(offer(service.address[1], 50, 0.2, request))
    assert offered.statuses == Counter({200: 10})
    missing = asyncio.run(load(service.address[1], 1, 0, lambda: post(service.address[1], "/v1/none", b"")))
    assert missing.answers == []
    with pytest.raises(RuntimeError, match="404"):
        asyncio.run(offer(service.address[1], 10, 0.1, lambda: post(service.address[1], "/no", b""))).require_success()


def test_every_round_begins_with_another_way() -> None:
    order: list[str] = []
    results = in_turn({name: lambda name=name: order.append(name) or len(order) for name in "abc"}, 2)
    assert order == ["a", "b", "c", "b", "c", "a"]
    assert results == {"a": [1, 6], "b": [2, 4], "c": [3, 5]}


def test_a_server_is_weighed_held_still_and_ended_with_its_children() -> None:
    command = f"{sys.executable} -m http.server {{port}} --bind 127.0.0.1 >/dev/null 2>&1 & echo; wait"

    with serving_process(["sh", "-c", command], "/") as server:
        shell, child = server.processes()
        assert server.memory() > 5 * 2**20  # of Python, which the shell started
        server.pause()
        assert (state(shell), state(child)) == ("T", "T")
        server.resume()
        assert {state(shell), state(child)} <= {"S", "R"}
    assert {state(shell), state(child)} <= {"", "Z"}


def loaded(statuses: dict[int, float], seconds: float = 10, **headers: str) -> Load:
    """One answer a status, after so many seconds."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Load([Answer(status, named, after) for status, after in statuses.items()], seconds)


def test_an_overload_is_compared_with_before_and_after() -> None:
    before, many = loaded({200: 0.1}, 2), loaded({200: 4.0, 429: 0.002}, 4, retry_after="3")
    late = loaded({200: 1.5, 504: 1.02}, x_inference_time="100")
    measured = overload.Measured(loaded({200: 0.05}), before, many, [2**20, 3 * 2**20], before, 2**20, {1.0: late})
    found = dict(overload.overload_rows(measured, places=2))
    assert found["answered with 429"] == "50.0%"
    assert found["throughput of accepted requests, to that before"] == "0.500"
    assert found["their p50, to that of a request alone"] == "80.00"
    assert found["their p50, to the time that a full queue takes"] == "1.00"
    assert found["time until a 429, p50, to the median of a request alone"] == "0.04"
    assert found["Retry-After in s, least, median, most"] == "3 3 3"
    assert found["change at the most, during it"] == "+2.0"
    assert list(overload.deadline_rows(measured, places=2)) == [("0.25", "50.0%", "0.0%", "50.0%", "+5.00")]


def test_a_peer_gives_the_labels_of_the_full_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared, image = prepare(tmp_path, "embedded", 1), pictures()[0]
    monkeypatch.setenv("PEER_FOLDER", str(prepared.full))
    monkeypatch.setenv("PEER_THREADS", "1")
    with TestClient(create_app()) as client:
        answer = client.post(f"/{prepared.tasks.names[0]}", content=image)
    (right,) = prepared.right([image], reduced=False)
    assert ways.WAYS[ways.THREADS].label(answer.content) in right


def test_more_tasks_than_pictures_are_asked(tmp_path: Path) -> None:
    prepared = prepare(tmp_path, "vit-least", len(pictures()) + 1)
    with ways.starts(prepared, sys.executable)[ways.THREADS]() as server:
        server.pause()
        asyncio.run(check(server, ways.WAYS[ways.THREADS], prepared))


def test_peers_are_compared_with_the_best_of_them() -> None:
    base = {"model": "embedded", "tasks": 1, "p50_seconds": 1.0, "p99_seconds": 2.0, "resident_bytes": 2**20,
            "concurrency": 32, "cores": 2, "dtype": "bfloat16", "versions": "", "date": ""}  # fmt: skip
    speeds = {"fpet serve, reduced": 30.0, ways.THREADS: 10.0, ways.LITSERVE: 20.0}
    page = rows.tables([rows.Row(way=way, images_per_second=speed, **base) for way, speed in speeds.items()])
    assert "| fpet serve, reduced | 1.500 | 1.500 | 1.500 | 1.000 | 1.000 | 1 |" in page
    assert f"| {ways.THREADS} | 0.500 |" in page
