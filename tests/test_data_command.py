"""`fpet data`: what can be had is listed, what cannot be had is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fpet.cli import main
from fpet.data import SOURCES, load_dataset
from fpet.data.packaged import PACKAGED
from fpet.data.pinned import PINNED

DRAWN = "sprites-location"  # a source that is always there, and refuses what differs


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No package manager can be found."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_table_says_what_a_data_set_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "digits", DRAWN, "digits", "--cache", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    heading, digits, drawn = out.splitlines()
    assert " ".join(heading.split()) == "name group classes train val test sha256 as in our tables"
    ours = load_dataset("digits").sha256 == PINNED["digits"].sha256
    beginning = load_dataset("digits").sha256[:12]
    assert digits.split() == ["digits", "specialised", "10", "800", "200", "597", beginning, "yes" if ours else "no"]
    assert drawn.split()[:6] == [DRAWN, "structured", "16", "800", "200", "2000"]
    assert drawn.split()[-1] == "-"
    assert bool(err) is not ours


def test_list_prints_what_there_is_and_fetches_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--list", "--cache", str(tmp_path / "none")]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == ["name", "group", "what"]
    assert [line.split()[0] for line in lines] == list(SOURCES)
    assert not (tmp_path / "none").exists()
    assert main(["data", "digits", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "digits", "group": "specialised", "what": "handwritten digits"}
    ]


def test_json_has_the_labels_and_the_whole_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", DRAWN, "--json", "--cache", str(tmp_path)]) == 0
    [row] = json.loads(capsys.readouterr().out)
    data = load_dataset(DRAWN)
    assert (row["name"], row["labels"], row["sha256"]) == (DRAWN, list(data.labels), data.sha256)
    assert (row["classes"], row["train"], row["val"], row["test"], row["as_in_our_tables"]) == (
        16,
        800,
        200,
        2000,
        None,
    )


def test_data_other_than_those_of_our_tables_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PINNED, DRAWN, PINNED["digits"])
    assert main(["data", DRAWN, "--cache", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out.split()[-1] == "no"
    assert err == f"fpet: {DRAWN}: not the data that our tables were made with ({PINNED['digits'].versions})\n"


@pytest.mark.parametrize("source", ["emoji", "icons"])
def test_a_named_source_that_cannot_be_had_is_skipped_with_exit_code_2(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", source, "digits", "--json", "--cache", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert [row["name"] for row in json.loads(out)] == ["digits"]
    lines = err.splitlines()
    assert lines[0].startswith(f"fpet: skipped {source}: the ")
    assert "cannot be fetched" in lines[0]


def test_without_names_everything_that_can_be_had_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: SOURCES[name] for name in (*PACKAGED, "digits")}  # the scenes take their time
    monkeypatch.setattr("fpet.commands.data.SOURCES", few)
    assert main(["data", "--json", "--cache", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert [row["name"] for row in json.loads(out)] == ["digits"]
    assert [line.split(":")[1] for line in err.splitlines() if "skipped" in line] == [f" skipped {n}" for n in PACKAGED]


def test_an_unknown_name_is_refused_before_anything_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "digits", "cifar"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fpet: no data 'cifar': the sources are fashion-mnist, digits, emoji")


def test_the_help_says_what_each_source_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["data", "--help"])
    text = "".join(capsys.readouterr().out.split())  # lines are broken at hyphens too
    for name, source in SOURCES.items():
        assert f"{name}: {source.summary}".replace(" ", "") in text
