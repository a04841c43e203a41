"""`fpet import-backbone`: one file that everything else reads, or one clear line and no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import original
import pytest
import safetensors.torch
import timm
import torch
from small import ARCHITECTURE, ARGUMENTS, small_backbone

from fpet.backbone import load_backbone, save_backbone
from fpet.cli import main
from fpet.errors import BackboneError
from fpet.safetensors_files import read_safetensors

SMALL = "img_size=16,patch_size=4,embed_dim=24,depth=2,num_heads=3"


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    path = tmp_path / "ViT.npz"
    np.savez(path, **original.google(small_backbone().vit))
    return path


def command(source: Path | str, *arguments: str, architecture: str = ARCHITECTURE, given: str = SMALL) -> list[str]:
    named = ["--architecture", architecture, "--architecture-arguments", given]
    return ["import-backbone", str(source), *named, *arguments]


def test_what_is_written_describes_itself(npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = npz.with_name("ours.safetensors")
    assert main(command(npz, "--output", str(output), "--mean", "0.1,0.2,0.3", "--std", "0.4,0.5,0.6")) == 0
    said = capsys.readouterr().out
    loaded: Any = load_backbone(output)
    assert loaded.fingerprint == small_backbone().fingerprint
    assert said == (
        f"{output}: {ARCHITECTURE}, 4x4 patches; mean 0.1,0.2,0.3; std 0.4,0.5,0.6; "
        f"fingerprint {loaded.fingerprint[:12]}\n"
    )
    assert loaded.arguments == ARGUMENTS
    assert tuple(loaded.vit.pretrained_cfg["mean"]) == (0.1, 0.2, 0.3)
    metadata, _ = read_safetensors(output, BackboneError)
    provenance = json.loads(metadata["fpet"])["provenance"]
    assert provenance["source"] == "ViT.npz"
    assert len(provenance["sha256"]) == 64
    assert main(command(npz, "--output", str(output))) == 2
    assert "it is there already" in capsys.readouterr().err
    assert main(command(npz, "--output", str(npz.with_name("ours.pth")))) == 2
    assert "ours.pth: a backbone file's name ends in .safetensors" in capsys.readouterr().err


def test_another_image_size_is_said(npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = npz.with_name("wide.safetensors")
    wide = SMALL.replace("img_size=16", "img_size=16+32")
    assert main(command(npz, "--output", str(output), given=wide)) == 0
    assert "4x8 patches, position embeddings resampled from 4x4 to 4x8; " in capsys.readouterr().out
    metadata, _ = read_safetensors(output, BackboneError)
    assert json.loads(metadata["fpet"])["provenance"]["resampled_from"] == [4, 4]
    assert load_backbone(output).geometry.grid == (4, 8)


def test_a_mean_that_is_not_three_numbers_is_said(npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("1,2", "1,2,3,4", "a,b,c"):
        with pytest.raises(SystemExit, match="2"):
            main(command(npz, "--output", str(npz.with_name("ours.safetensors")), "--mean", wrong))
        message = f"argument --mean: '{wrong}' is not three numbers such as 0.5,0.5,0.5\n"
        assert capsys.readouterr().err.endswith(message)


REFUSED: dict[str, dict[str, str]] = {
    "SwinTransformer": {"architecture": "swin_tiny_patch4_window7_224", "given": ""},
    "ConvNeXt": {"architecture": "convnext_tiny", "given": ""},
    "pools by 'map'": {"architecture": "vit_base_patch16_siglip_224", "given": ""},
    "timm has no model 'nothing'": {"architecture": "nothing"},
    "encoderblock_0/MultiHeadDotProductAttention_1/query/kernel' has shape [24, 3, 8], which is not of 12 heads": {
        "architecture": "vit_base_patch16_224",
        "given": "patch_size=4",
    },
    "ViT.npz: an image of 113 x 113 pixels is no whole number of patches of 8 x 8": {
        "given": "img_size=113,patch_size=8"
    },
    "the argument 'checkpoint_path' is not": {"given": "checkpoint_path=x"},
    "names the architecture itself": {"source": "timm:vit_tiny_patch16_224"},
    "cannot be read": {"source": "missing.npz"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_used_is_one_line_and_no_file(
    npz: Path, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output = npz.with_name("ours.safetensors")
    case = {"source": str(npz), **REFUSED[message]}
    assert main(command(case.pop("source"), "--output", str(output), **case)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not output.exists()


def test_other_commands_take_foreign_files_as_well(npz: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = npz.with_name("digits.safetensors")
    wide = ["--architecture", ARCHITECTURE, "--architecture-arguments", SMALL.replace("img_size=16", "img_size=24")]
    fast = ["--epochs", "1", "--warmup-epochs", "0", "--batch-size", "200", "--reducer-arguments", "block=0,dim=4"]
    train = ["train", "--data", "digits", "--name", "digits", "--output", str(output), "--backbone", str(npz)]
    assert main([*train, *wide, *fast]) == 0
    assert "resampled from 4x4 to 6x6" in capsys.readouterr().err


# huggingface_hub reads its settings when it is imported, hence a process of its own.
HUB = """
import sys
from fpet.cli import main
for name in sys.argv[1:]:
    command = ["import-backbone", f"timm:{name}", "--architecture-arguments", "img_size=80,norm_eps=1e-5"]
    print(main([*command, "--output", f"{name}.safetensors"]))
"""


def test_timms_own_download_is_used_when_asked_for(tmp_path: Path) -> None:
    """The weights lie in the cache, where a download leaves them; without them and a network it is a clear error."""
    stock = timm.create_model("test_vit.r160_in1k")
    commit = "0" * 40
    cached = tmp_path / "hub" / "models--timm--test_vit.r160_in1k"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    (cached / "snapshots" / commit).mkdir(parents=True)
    safetensors.torch.save_file(stock.state_dict(), cached / "snapshots" / commit / "model.safetensors")
    names = ["test_vit.r160_in1k", "test_vit2.r160_in1k", "vit_base_patch16_siglip_224.webli"]
    done = subprocess.run(
        [sys.executable, "-c", HUB, *names],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")},
        capture_output=True,
        text=True,
        check=True,
    )
    first, *codes = done.stdout.splitlines()
    assert "5x5 patches, position embeddings resampled from 10x10 to 5x5" in first
    assert codes == ["0", "2", "2"]
    offline, uncovered = done.stderr.splitlines()
    assert offline.startswith("fpet: timm cannot get the weights of test_vit2.r160_in1k: ")
    assert "pools by 'map'" in uncovered
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == ["test_vit.r160_in1k.safetensors"]
    stock.set_input_size([80, 80])
    loaded: Any = load_backbone(tmp_path / "test_vit.r160_in1k.safetensors")
    assert (loaded.arguments["norm_eps"], loaded.vit.norm.eps) == (1e-5, 1e-5)
    for name, value in loaded.vit.state_dict().items():
        assert torch.equal(value, stock.state_dict()[name]), name


def test_a_described_file_needs_no_name(tmp_path: Path) -> None:
    save_backbone(tmp_path / "ours.safetensors", small_backbone())
    output = tmp_path / "large.safetensors"
    resize = ["--architecture-arguments", "img_size=32", "--output", str(output)]
    assert main(["import-backbone", str(tmp_path / "ours.safetensors"), *resize]) == 0
    assert load_backbone(output).arguments == {**ARGUMENTS, "img_size": 32}
