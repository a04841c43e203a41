"""The table of a sweep on the disk: whole at any time, and without what was overtaken."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from fpet.locks import sole_writer
from fpet.sweeps.results import Row, add_row, drop_failed, read_rows

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


def test_a_table_holds_whatever_an_error_says(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    said = ["Icon\r: no picture", 'a "b",\nc', "\r", "caf\udce9"]
    rows = [dataclasses.replace(ROW, run=str(seed), seed=seed, error=error) for seed, error in enumerate(said)]
    for row in rows:
        add_row(path, row)
    assert read_rows(path) == rows


def test_a_run_takes_the_place_of_a_failed_one_in_its_cell(tmp_path: Path) -> None:
    """As once data can be had that could not: with them it is another run."""
    path = tmp_path / "table.csv"
    failed = dataclasses.replace(ROW, error="no")
    others = [dataclasses.replace(failed, run="2", seed=1), dataclasses.replace(failed, run="3", data="pets")]
    for row in (failed, *others, dataclasses.replace(ROW, run="4")):
        add_row(path, row)
    assert [row.run for row in read_rows(path)] == ["2", "3", "4"]


def test_rows_that_others_add_meanwhile_stay(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = [dataclasses.replace(ROW, run=str(seed), seed=seed) for seed in range(8)]
    failed = dataclasses.replace(ROW, run="failed", error="no", data="pets")
    add_row(path, failed)
    with ThreadPoolExecutor(len(rows) + 1) as pool, sole_writer(path):
        changes = [pool.submit(add_row, path, row) for row in rows]
        changes.append(pool.submit(drop_failed, path, failed.cell))
        assert not wait(changes, timeout=0.2).done
        assert read_rows(path) == [failed]
    for change in changes:
        change.result()
    assert sorted(read_rows(path), key=lambda row: row.seed) == rows


def test_what_is_read_is_written_again_as_it_was(tmp_path: Path) -> None:
    """As the name of a folder that is no UTF-8, and tokens that are a whole number or a mean."""
    path = tmp_path / "table.csv"
    rows = [
        dataclasses.replace(ROW, data=os.fsdecode(b"pets\xe9"), tokens_out=99),
        dataclasses.replace(ROW, tokens_out=98.5),
    ]
    for seed, row in enumerate(rows):
        add_row(path, dataclasses.replace(row, run=str(seed), seed=seed))
    before = path.read_bytes()
    assert b"pets\xe9" in before
    assert [row.data for row in read_rows(path)] == [rows[0].data, "digits"]
    add_row(path, dataclasses.replace(ROW, run="2", seed=2))
    assert path.read_bytes().startswith(before)


def test_a_table_that_a_spreadsheet_saved_is_read(tmp_path: Path) -> None:
    """With a mark of UTF-8 in front and its own line ends."""
    path = tmp_path / "table.csv"
    add_row(path, ROW)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_rows(path) == [ROW]
