"""What token reduction costs and saves, and what folding changes, is measured on real steps and forwards."""

from __future__ import annotations

import pytest
from small import ARCHITECTURE

from benchmarks import cost, folded_answers, forward_cost, training_cost

SHAPE = "img_size=64,patch_size=8,embed_dim=48,depth=6,num_heads=3"
SMALL = ["--architecture", ARCHITECTURE, "--architecture-arguments", SHAPE, "--reducer-arguments", "block=1"]


def test_training_cost_is_measured_on_real_steps(capsys: pytest.CaptureFixture[str]) -> None:
    training_cost.main(training_cost.parser().parse_args([*SMALL, "--batch-size", "4", "--repeats", "2"]))
    _, _, full, reduced, *_ = capsys.readouterr().out.splitlines()
    assert full.startswith("| none | 65 |")
    assert reduced.startswith("| bdm | 33 |")
    *_, ratio, spread, _, memory = (cell.strip() for cell in reduced.strip("| ").split("|"))
    least, _, most = spread.partition(" to ")
    assert 0 < float(least) <= float(ratio) <= float(most)
    assert 0 < float(memory) < 1


def test_an_epoch_has_as_many_steps_as_are_asked_for() -> None:
    arguments = training_cost.parser().parse_args(SMALL)
    backbone = cost.backbone(arguments)
    for methods in cost.without_and_with(arguments, backbone.geometry.depth):
        assert training_cost.new_run(backbone, methods, 4, "float32", 3).steps == 3


@pytest.mark.parametrize(
    ("precision", "adapter"), [("float32", "adaptformer"), ("bfloat16", "adaptformer"), ("float32", "lora")]
)
def test_forward_cost_is_measured_on_real_forwards(
    precision: str, adapter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--images", "1", "3", "--repeats", "2", "--precision", precision, "--adapter", adapter]
    more += ["--folded"] if adapter == "lora" else []
    forward_cost.main(forward_cost.parser().parse_args([*SMALL, *more]))
    _, _, *lines, _, conditions = capsys.readouterr().out.splitlines()
    assert [line[: line.index("33 |") + 4] for line in lines] == ["| 1 | 65 | 33 |", "| 3 | 65 | 33 |"]
    for line in lines:
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        for ratio, spread in (cells[3:5], cells[5:]):
            least, _, most = spread.partition(" to ")
            assert 0 < float(least) <= float(ratio) <= float(most)
    assert f" with {adapter}, {precision}, CPU, " in conditions


def test_folding_changes_answers_in_bfloat16_alone(capsys: pytest.CaptureFixture[str]) -> None:
    changed = []
    for precision in ("bfloat16", "float32"):
        options = ["--precision", precision, "--images", "4", "--tasks", "digits", "thai"]
        folded_answers.main(folded_answers.parser().parse_args(options))
        lines = capsys.readouterr().out.splitlines()
        assert not any(line.startswith("| thai") for line in lines)  # its adapter does not fold
        (line,) = (line for line in lines if line.startswith("| digits | "))
        changed += [[float(cell.partition(",")[0]) for cell in line.strip("| ").split(" | ")[1:]]]
    rounded, exact = changed
    assert min(rounded) > 10 * max(exact)
    assert max(rounded) < 0.1
