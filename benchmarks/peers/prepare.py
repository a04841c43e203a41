"""What all of them serve: tasks as files for this service, and as full models for its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.peers.models import decode, write_models
from benchmarks.variations import unquantised, write_variations
from fpet.backbone import create_backbone, load_backbone, save_backbone
from fpet.header import Method
from fpet.task import Task, new_model
from fpet.untrained import half_way, new_header
from fpet.weights import default_backbone, task_path

EMBEDDED_TASK = "digits"  # LoRA, which folds, so that the peers can have it as a full model
_SMALL = "vit_small_patch16_224"
_CLASSES = 10
# How far below the best a logit may be, in times the distance of the best to their mean, to be the right label too.
# The networks compute in bfloat16, with other roundings in batches of other sizes.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class Prepared:
    """names: of the tasks; backbone: file; tasks: folder of task files; full: folder of full models."""

    names: list[str]
    backbone: Path
    tasks: Path
    full: Path

    def right(self, images: Sequence[bytes], *, reduced: bool) -> list[set[str]]:
        """The labels that count as right for the i-th image by the i-th task, as computed in float32."""
        backbone, right = load_backbone(self.backbone), []
        for name, image in zip(self.names, images, strict=True):
            task = Task.load(self.tasks / f"{name}.safetensors")
            model = task.build(backbone)
            with torch.inference_mode():
                pixels = task.header.preprocessing.normalize(
                    decode(image, task.header.preprocessing)[None], torch.float32
                )
                logits = (model if reduced else model.unreduced())(pixels)[0]
            least = logits.max() - _TOLERANCE * (logits.max() - logits.mean())
            right.append({task.header.labels[i] for i in torch.nonzero(logits >= least)[:, 0].tolist()})
        return right


def prepare(folder: Path, model: str, count: int) -> Prepared:
    """Writes so many tasks of a model, `embedded` or `vit-small`, whose weights are random."""
    tasks, full = folder / "tasks", folder / "full"
    for path in (tasks, full):
        path.mkdir(parents=True)
    if model == "embedded":
        path = default_backbone()
        backbone = load_backbone(path)
        header, adapted = unquantised(Task.load(task_path(EMBEDDED_TASK)), backbone)
    else:
        path = folder / "backbone.safetensors"
        backbone = create_backbone(_SMALL, {})
        save_backbone(path, backbone.vit, _SMALL, {}, {})
        methods = Method("lora", {"dim": 8}), half_way(Method("bdm"), backbone.geometry.depth)
        header = new_header("small", tuple(map(str, range(_CLASSES))), backbone, methods, 32)
        adapted = new_model(header, backbone)
    names = write_variations(tasks, header, adapted, count)
    write_models(full, sorted(tasks.iterdir()), backbone)
    return Prepared(names, path, tasks, full)
