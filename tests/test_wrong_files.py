"""A task, a backbone, a folded task, a foreign file and a pipe, each where another is due: the true reason in one
line."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import safetensors.torch
from published_files import save_small_backbone
from serving import write_foldable
from small import small_backbone

from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

PIPE = {"pipe": "cannot be read: it is not a regular file"}
AS_TASK = {
    **PIPE,
    "backbone": "this is a backbone, not a task",
    "folded": "this is a folded task, a checkpoint for stock timm, not a task file",
    "foreign": "the header has no field 'fpet'; this is not a task file",
}
AS_BACKBONE = {
    **PIPE,
    "task": "this is a task, not a backbone",
    "folded": "this is a folded task, a checkpoint for stock timm, not the backbone of a task",
    "foreign": "the file does not say its architecture; name the timm model: `fpet import-backbone FILE --architecture "
    "NAME` makes a file that says it",
}
TASK_COMMANDS = (
    "classify nothing.png --task {wrong} --backbone {backbone}",
    "convert {wrong} --output {output}",
    "convert {wrong} --to peft --backbone {backbone} --output {output}",
    "fold --task {wrong} --backbone {backbone} --output {output}",
    "show {wrong}",
)
BACKBONE_COMMANDS = (
    "classify nothing.png --task {task} --backbone {wrong}",
    "convert {task} --to peft --backbone {wrong} --output {output}",
    "fold --task {task} --backbone {wrong} --output {output}",
    "import-backbone {wrong} --output {output}",
)
CASES = [
    (command, kind, reason)
    for commands, reasons in ((TASK_COMMANDS, AS_TASK), (BACKBONE_COMMANDS, AS_BACKBONE))
    for command in commands
    for kind, reason in reasons.items()
]


def end_readers(pipe: Path) -> None:
    """Who opens the pipe finds it empty, instead of waiting for ever."""
    while True:
        pipe.open("wb").close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind, and where a command is to write."""
    folder = tmp_path_factory.mktemp("files")
    task, backbone = write_foldable(folder, "task"), save_small_backbone(folder / "backbone.safetensors")
    folded, foreign = folder / "folded.safetensors", folder / "foreign.safetensors"
    assert main(["fold", "--task", str(task), "--backbone", str(backbone), "--output", str(folded)]) == 0
    safetensors.torch.save_file(small_backbone().vit.state_dict(), foreign, {"format": "pt"})
    output, pipe = folder / "output.safetensors", folder / "pipe.safetensors"
    os.mkfifo(pipe)
    threading.Thread(target=end_readers, args=(pipe,), daemon=True).start()
    return {"task": task, "backbone": backbone, "folded": folded, "foreign": foreign, "pipe": pipe, "output": output}


@pytest.mark.parametrize(("command", "kind", "reason"), CASES)
def test_a_file_that_is_something_else_is_told_for_what_it_is(
    command: str, kind: str, reason: str, files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(**files, wrong=files[kind]) for word in command.split()]) == 2
    assert capsys.readouterr() == ("", f"fpet: {files[kind]}: {reason}\n")
    assert not files["output"].exists()


def test_a_folded_task_is_no_backbone_whatever_architecture_is_named(
    files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--architecture", "vit_tiny_patch16_224", "--output", str(files["output"])]
    assert main(["import-backbone", str(files["folded"]), *named]) == 2
    assert capsys.readouterr().err == f"fpet: {files['folded']}: {AS_BACKBONE['folded']}\n"
