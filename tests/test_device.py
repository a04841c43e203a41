"""On a GPU no forward and no step of training would leave a tensor on the CPU, or wait for a number.

A machine without one can tell: see `pretended_device`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pairs
import pretended_device
import pytest

# How many tokens LTMP leaves depends on the image, so that inference has to ask; in training it masks them.
ASKS = "DataDependentOutputException"


@pytest.fixture(scope="module")
def found() -> dict[str, str | None]:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, pretended_device.__file__],
        env={"PYTHONPATH": f"{here}:{here.parent}", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("adapter", "reducer"), pairs.PAIRS)
def test_a_forward_stays_on_its_device(found: dict[str, str | None], adapter: str, reducer: str) -> None:
    trouble = found[f"infer {adapter} {reducer}"]
    assert (trouble or "").startswith(ASKS) if reducer == "ltmp" else trouble is None


@pytest.mark.parametrize(("adapter", "reducer"), pairs.TRACED)
def test_a_forward_for_several_tasks_stays_on_its_device(
    found: dict[str, str | None], adapter: str, reducer: str
) -> None:
    trouble = found[f"mix {adapter} {reducer}"]
    assert (trouble or "").startswith(ASKS) if reducer == "ltmp" else trouble is None


@pytest.mark.parametrize(("adapter", "reducer"), pairs.TRACED)
def test_a_step_of_training_stays_on_its_device(found: dict[str, str | None], adapter: str, reducer: str) -> None:
    assert found[f"train {adapter} {reducer}"] is None
