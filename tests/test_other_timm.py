"""A release of timm that computes something else than the forward pass does: no command goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pictures
import pytest
from serving import Files
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from fpet.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def other_timm() -> Iterator[None]:
    """timm calls its blocks; the forward pass calls what is in them."""

    def other(module: nn.Module, _: object, output: Tensor) -> Tensor | None:
        return 1.01 * output if isinstance(module, Block) else None

    hook = register_module_forward_hook(other)
    yield
    hook.remove()


@pytest.mark.usefixtures("other_timm")
@pytest.mark.parametrize("command", ["train", "evaluate", "classify"])
def test_no_command_computes_what_the_installed_timm_does_not(
    small_files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    picture, output = tmp_path / "picture.png", tmp_path / "digits.safetensors"
    picture.write_bytes(pictures.png(0))
    task = ["--task", str(small_files.tasks / "digits.safetensors")]
    more = {
        "train": ["--data", "digits", "--name", "digits", "--output", str(output)],
        "evaluate": [*task, "--data", "digits"],
        "classify": [str(picture), *task],
    }
    assert main([command, *more[command], "--backbone", str(small_files.backbone)]) == 2
    assert "differs from timm's by" in capsys.readouterr().err
    assert not output.exists()
