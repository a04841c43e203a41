"""What is said where the images that judge a task may be some that it was trained on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from serving import write_task
from small import small_backbone, small_header

from fpet.backbone import save_backbone
from fpet.cli import main

MAY_BE = "split at random: it may have been trained on some of those that are to judge it now\n"


@pytest.mark.parametrize(
    ("provenance", "said"),
    [
        (
            {"data": {"name": "digits", "sha256": "0" * 64}},
            f"fpet: the files in digits are not those that digits was trained on, and they are {MAY_BE}",
        ),
        ({}, f"fpet: digits does not say what it was trained on, and the files in digits are {MAY_BE}"),
    ],
    ids=["another version of the package", "no data named"],
)
def test_of_data_that_are_split_at_random_anew(
    provenance: dict[str, object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone, file, task = small_backbone(), tmp_path / "small.safetensors", tmp_path / "digits.safetensors"
    save_backbone(file, backbone)
    write_task(task, dataclasses.replace(small_header(backbone), provenance=provenance), backbone)
    assert main(["evaluate", "--task", str(task), "--data", "digits", "--backbone", str(file)]) == 0
    assert capsys.readouterr().err == said
