"""Under transformers' names a LoRA goes only to and from what a model of transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from peft_models import convert, hugging_face_model, tuned
from small import ARCHITECTURE, ARGUMENTS

from fpet.backbone import Backbone, create_backbone, load_backbone
from fpet.convert.peft import WEIGHTS, read_peft
from fpet.convert.peft_writer import peft_files
from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.task import Task, new_model, save_task
from fpet.untrained import new_header

OTHERS = {
    "pools by 'avg'": {"global_pool": "avg", "fc_norm": False},
    "has several register tokens": {"reg_tokens": 2},
    "has a norm before its blocks": {"pre_norm": True},
    "has no norm behind its blocks": {"fc_norm": True},
    "scales what its layers add": {"init_values": 0.1},
    "has a norm within its attention": {"qk_norm": True},
    "has a norm within its MLPs": {"scale_mlp_norm": True},
}


def task_on(backbone: Backbone, path: Path) -> Task:
    header = new_header(
        path.stem, ("a", "b"), backbone, adapter=Method("lora", {"dim": 2, "targets": "q+v"}), reducer=Method("none")
    )
    save_task(path, header, new_model(header, backbone))
    return Task.load(path)


@pytest.mark.parametrize("part", OTHERS)
def test_another_forward_has_no_names_of_transformers(part: str, tmp_path: Path) -> None:
    backbone = create_backbone(ARCHITECTURE, {**ARGUMENTS, **OTHERS[part]})
    task = task_on(backbone, tmp_path / "task.safetensors")
    with pytest.raises(UnsupportedError, match=f"{ARCHITECTURE} {part}, unlike any ViT or DeiT of transformers"):
        peft_files(task, backbone, "transformers")
    written = safetensors.torch.load(peft_files(task, backbone)[WEIGHTS])
    assert any(".blocks.0.attn.qkv." in name for name in written)


def test_a_backbone_in_which_weights_are_rounded_is_refused(tmp_path: Path) -> None:
    backbone = create_backbone(ARCHITECTURE, ARGUMENTS)
    task = task_on(backbone, tmp_path / "task.safetensors")
    backbone.move("cpu", torch.bfloat16)
    with pytest.raises(UnsupportedError, match="the backbone is bfloat16, in which a task's weights are rounded"):
        peft_files(task, backbone)


def test_a_checkpoint_of_transformers_is_not_read_onto_another_pooling(tmp_path: Path) -> None:
    base, folder, file = tmp_path / "base", tmp_path / "peft", tmp_path / "backbone.safetensors"
    hugging_face_model().save_pretrained(base)
    convert(base, file)
    tuned(hugging_face_model(), "classifier", ["q_proj"]).save_pretrained(folder)
    assert read_peft(folder, load_backbone(file)).classes == 5
    pooled = load_backbone(file, arguments={"global_pool": "avg", "fc_norm": False})
    with pytest.raises(UnsupportedError, match="pools by 'avg', unlike any ViT or DeiT of transformers"):
        read_peft(folder, pooled)
