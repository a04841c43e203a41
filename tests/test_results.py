"""The table of a sweep on the disk: whole at any time, and without what was overtaken."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from fpet.results import Row, add_row, read_rows

ROW = Row(
    run="1",
    data="digits",
    method="Linear",
    seed=0,
    epochs=1,
    adapter="none",
    adapter_arguments="{}",
    reducer="none",
    reducer_arguments="{}",
    head_bits=32,
    batch_size=4,
    lr=0.1,
    precision="float32",
    backbone="small",
    device="cpu",
    threads=1,
    fpet="0",
    torch="2",
)


def test_a_table_takes_the_place_of_the_last_one_whole(tmp_path: Path) -> None:
    path, reader = tmp_path / "table.csv", tmp_path / "reader"
    add_row(path, ROW)
    before = path.read_bytes()
    os.link(path, reader)  # the last one stays as it is, under whatever name
    add_row(path, dataclasses.replace(ROW, run="2", seed=1))
    assert reader.read_bytes() == before
    assert [one.run for one in read_rows(path)] == ["1", "2"]


def test_a_run_takes_the_place_of_a_failed_one_in_its_cell(tmp_path: Path) -> None:
    """As once data can be had that could not: with them it is another run."""
    path = tmp_path / "table.csv"
    failed = dataclasses.replace(ROW, error="no")
    others = [dataclasses.replace(failed, run="2", seed=1), dataclasses.replace(failed, run="3", data="pets")]
    for row in (failed, *others, dataclasses.replace(ROW, run="4")):
        add_row(path, row)
    assert [row.run for row in read_rows(path)] == ["2", "3", "4"]
