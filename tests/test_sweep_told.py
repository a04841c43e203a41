"""What a sweep refuses and says before it trains, and what makes a run another one."""

from __future__ import annotations

import resource
import weakref
from pathlib import Path

import pytest
import torch
from picture_files import classes, picture
from plans import PLAN, command
from small import ARCHITECTURE, ARGUMENTS, small_backbone

from fpet.backbone import create_backbone, load_backbone
from fpet.cli import main
from fpet.data import ResizedSplit, Split
from fpet.preprocess import Preprocessing
from fpet.sweeps.jobs import jobs
from fpet.sweeps.plan import load_plan
from fpet.sweeps.results import read_rows
from fpet.sweeps.sweep import sweep
from fpet.training.checkpoint import RunState

pytestmark = pytest.mark.usefixtures("one_thread")

SHARED = PLAN.partition("[[method]]")[0].replace(', "nowhere"', "")
LINEAR = '[[method]]\nname = "Linear"\nadapter = "none"\nreducer = "none"\n'
WRONG = {
    'adapter = "adaptfomer"': "unknown kind 'adaptfomer'; known are none, ",
    "adapter_arguments = { rank = 8 }": "adaptformer has no argument 'rank'",
    "adapter_arguments = { dropout = 2.0 }": "adaptformer: dropout = 2.0 should be in [0, 1)",
    f"adapter_arguments = {{ dim = {10**18} }}": f"the arguments dim = {10**18} make no model: ",
    "reducer_arguments = { block = 9 }": "block = 9: the backbone's blocks are 0 to 1",
    "head_bits = 3": "bits = 3: weights have 1, 2, 4, 8 or 32 bits",
    'adapter = "adaptfomer"\nsearch_scale = [1]': "unknown kind 'adaptfomer'; known are none, ",
    'adapter = "ssf"\nsearch_scale = [1]': "ssf has no argument 'scale' to search for",
    "search_scale = [-1]": "adaptformer: scale = -1.0 should be above 0",
    'adapter = "convpass"': "they cannot go together",
    'recipe = { precision = "float16" }': "float16 is for training on a GPU",
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "plan.toml").write_text(SHARED + LINEAR)
    return tmp_path / "plan.toml"


def test_methods_that_cannot_be_trained_are_all_named_before_any_is_trained(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [f'[[method]]\nname = "wrong {index}"\n{line}\n' for index, line in enumerate(WRONG)]
    plan.write_text(SHARED + LINEAR + "".join(wrong))
    assert main(command(plan, plan.with_name("table.csv"), backbone_file)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"fpet: {plan}: wrong 0: ")
    assert (captured.err.count("\n"), captured.out) == (1, "")
    for index, message in enumerate(WRONG.values()):
        assert message in captured.err.partition(f"wrong {index}: ")[2].partition(f"; wrong {index + 1}: ")[0], message
    assert "Linear" not in captured.err
    assert list(plan.parent.iterdir()) == [plan]


@pytest.mark.parametrize("more", [[], ["--list"]], ids=["to train", "to list"])
def test_data_that_are_not_there_are_all_named_before_anything_is_trained_or_listed(
    more: list[str], plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = f'"digits", "digit", "", {{ folder = "{plan.parent}/pets", split_seed = 1 }}'
    wrong = '[[method]]\nname = "wrong"\nadapter = "lore"\n[[method]]\nname = "nan"\nreducer = "ltmp"\n'
    wrong += "reducer_arguments = { target = nan }\n"
    plan.write_text(SHARED.replace('"digits"', data) + LINEAR + wrong)
    assert main([*command(plan, plan.with_name("table.csv"), backbone_file), *more]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"fpet: {plan}: no data 'digit': neither a source (fashion-mnist, ")
    assert "; the name of the data is empty; say . for this folder; no data" in captured.err
    assert f"; no data '{plan.parent}/pets': neither a source (" in captured.err
    assert "; wrong: unknown kind 'lore'" in captured.err
    assert "; nan: header.reducer.arguments.target is not finite" in captured.err
    assert (captured.err.count("\n"), captured.out) == (1, "")
    assert list(plan.parent.iterdir()) == [plan]


def test_a_format_that_is_slow_is_said_to_be_once_however_many_methods_have_it(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fpet.commands.sweep.slowness", lambda precision, device: f"{precision} is slow on {device}")
    plan.write_text(SHARED.replace("lr", 'precision = "bfloat16", lr') + LINEAR + LINEAR.replace("Linear", "again"))
    assert main(command(plan, plan.with_name("table.csv"), backbone_file)) == 0
    assert capsys.readouterr().err.count("fpet: bfloat16 is slow on cpu\n") == 1


def test_another_normalisation_is_another_run(plan: Path) -> None:
    backbone = small_backbone()
    darker = create_backbone(ARCHITECTURE, ARGUMENTS, backbone.vit.state_dict(), {"mean": (0.1, 0.1, 0.1)})
    assert darker.fingerprint == backbone.fingerprint
    rounder = create_backbone(ARCHITECTURE, {**ARGUMENTS, "norm_eps": 0.1}, backbone.vit.state_dict())
    assert rounder.fingerprint == backbone.fingerprint
    [[one], [same], *others] = ([job.key for job in jobs(load_plan(plan), vit, None)] for vit in (
        backbone, small_backbone(), darker, rounder
    ))  # fmt: skip
    assert one == same
    assert [one] not in others


def test_another_architecture_of_the_same_weights_is_another_run(plan: Path) -> None:
    """As that with another activation is."""
    first = create_backbone("vit_base_patch32_clip_224", ARGUMENTS)
    second = create_backbone("vit_base_patch32_clip_quickgelu_224", ARGUMENTS, first.vit.state_dict())
    assert first.fingerprint == second.fingerprint
    assert first.arguments == second.arguments
    one, other = ([job.key for job in jobs(load_plan(plan), vit, None)] for vit in (first, second))
    assert one != other


def test_other_pictures_are_another_run(plan: Path) -> None:
    for index in range(20):
        picture(plan.parent / "own" / "ab"[index % 2] / f"{index}.png", 10 * index)
    plan.write_text(SHARED.replace("digits", str(plan.parent / "own")) + LINEAR)
    [before] = [job.key for job in jobs(load_plan(plan), small_backbone(), None)]
    picture(plan.parent / "own" / "a" / "0.png", 5)
    [after] = [job.key for job in jobs(load_plan(plan), small_backbone(), None)]
    assert before != after


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("DefaultCPUAllocator: no memory\nat a line"), "DefaultCPUAllocator: no memory"),
        (MemoryError(), "MemoryError"),
        (RuntimeError("a mistake of the program"), None),
    ],
    ids=["torch's memory", "memory", "mistake"],
)
def test_only_an_error_that_explains_itself_is_a_row(error: Exception, told: str | None, plan: Path) -> None:
    backbone = small_backbone()

    def fails(*_: object) -> None:
        raise error

    backbone.vit.get_submodule("blocks.0.attn.qkv").register_forward_hook(fails)
    runs = sweep(load_plan(plan), backbone, plan.with_name("table.csv"), None, None, on_wait=print)
    if told:
        assert [row.error for _, row in runs if row] == [told]
    else:
        with pytest.raises(RuntimeError, match="a mistake of the program"):
            next(runs)


def test_a_folder_for_files_that_cannot_be_made_is_refused_before_anything_is_trained(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, kept = plan.with_name("table.csv"), plan.with_name("kept")
    kept.touch()
    assert main(command(plan, table, backbone_file, "--keep", str(kept))) == 2
    assert f"fpet: {kept}: cannot be written: File exists\n" in capsys.readouterr().err
    assert not table.exists()
    assert not plan.with_name("table.runs").exists()


def test_a_run_whose_file_cannot_be_written_ends_the_sweep_and_is_not_trained_again(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, kept = plan.with_name("table.csv"), plan.with_name("kept")
    [run] = jobs(load_plan(plan), load_backbone(backbone_file), None)
    run.kept(kept).mkdir(parents=True)  # where the file would be
    assert main(command(plan, table, backbone_file, "--keep", str(kept))) == 2
    assert f"{run.kept(kept)}: cannot be written: Is a directory" in capsys.readouterr().err
    assert not table.exists()
    [checkpoint] = plan.with_name("table.runs").rglob("*.checkpoint")
    trained = RunState.load(checkpoint, torch.load(checkpoint, weights_only=True)["run"])
    assert trained.epoch == 2
    run.kept(kept).rmdir()
    assert main(command(plan, table, backbone_file, "--keep", str(kept))) == 0
    [row] = read_rows(table)
    seconds = [epoch["seconds"] or 0 for epoch in trained.log]
    assert (row.training_seconds, row.epoch_seconds) == (round(sum(seconds), 3), round(sum(seconds) / 2, 4))
    assert not checkpoint.parent.parent.exists()


def test_a_sweep_ends_where_its_checkpoints_cannot_be_written(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = plan.with_name("table.csv")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as of a disk that is full
    try:
        assert main(command(plan, table, backbone_file)) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "task.checkpoint: cannot be written: File too large" in capsys.readouterr().err
    assert not table.exists()
    assert main(command(plan, table, backbone_file)) == 0


def test_the_pictures_of_one_data_set_are_in_memory_at_a_time(
    plan: Path, backbone_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [classes(plan.parent / name, {"a": 10, "b": 10}) for name in ("first", "second")]
    plan.write_text(SHARED.replace('"digits"', ", ".join(f'"{folder}"' for folder in folders)) + LINEAR)
    plan.write_text(plan.read_text().replace("batch_size = 100", "batch_size = 10"))
    resize, made, alive = Split._resize, list[weakref.ref[ResizedSplit]](), []

    def watched(split: Split, preprocessing: Preprocessing) -> ResizedSplit:
        alive.append(sum(one() is not None for one in made))
        made.append(weakref.ref(resized := resize(split, preprocessing)))
        return resized

    monkeypatch.setattr(Split, "_resize", watched)
    assert main(command(plan, plan.with_name("table.csv"), backbone_file)) == 0
    assert alive == [0, 1, 0, 1]  # training and validation images


def test_a_warm_up_that_is_not_over_is_said(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan.write_text(SHARED + LINEAR + 'recipe = { warmup_epochs = 10 }\n[[method]]\nname = "a"\nadapter = "none"\n')
    assert main(command(plan, plan.with_name("table.csv"), backbone_file)) == 0
    assert (
        "fpet: Linear: the warm-up of 10 epochs, which comes after the first, is not over after 2 of training: the "
        "learning rate stays below 0.01, at most 1e-06; give fewer warmup_epochs\n"
    ) in (told := capsys.readouterr().err)
    assert told.count("warm-up") == 1


def test_a_run_that_was_done_without_keeping_its_file_is_named(
    plan: Path, backbone_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, again = plan.with_name("kept"), command(plan, plan.with_name("table.csv"), backbone_file)
    lost = f"fpet: digits, Linear, seed 3: done before, and its file is not in {kept}; delete its row to train it again"
    assert main(again) == 0
    assert main([*again, "--keep", str(kept)]) == 0
    assert lost in capsys.readouterr().err
    plan.with_name("table.csv").unlink()
    assert main([*again, "--keep", str(kept)]) == 0
    assert main([*again, "--keep", str(kept)]) == 0
    assert lost not in capsys.readouterr().err
