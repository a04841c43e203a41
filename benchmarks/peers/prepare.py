"""What all of them serve: tasks as files for this service, and as full models for its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.formats import cpu_format
from benchmarks.peers.models import decode, write_models
from benchmarks.tasks import Tasks, write_tasks
from fpet.backbone import load_backbone
from fpet.task import Task

_EMBEDDED_TASK = "digits"  # LoRA, which folds, so that the peers can have it as a full model
# How far below the best a logit may be, in times the distance of the best to their mean, to be the right label too.
# The networks compute in bfloat16, with other roundings in batches of other sizes.
_TOLERANCE = 0.1


@dataclass(frozen=True)
class Prepared:
    """full: folder of the tasks as full models."""

    tasks: Tasks
    full: Path

    def right(self, images: Sequence[bytes], *, reduced: bool) -> list[set[str]]:
        """The labels that count as right for the i-th image by the i-th task, as computed in float32."""
        backbone, right = load_backbone(self.tasks.backbone), []
        for name, image in zip(self.tasks.names, images, strict=True):
            task = Task.load(self.tasks.folder / f"{name}.safetensors")
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
    """Writes so many tasks of a model, one of `benchmarks.tasks.MODELS`."""
    full = folder / "full"
    full.mkdir()
    tasks = write_tasks(folder, model, _EMBEDDED_TASK, count)
    write_models(full, sorted(tasks.folder.iterdir()), load_backbone(tasks.backbone), cpu_format())
    return Prepared(tasks, full)
