"""Tasks of one family to measure a service with: as the embedded one of that name, or of a larger backbone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.variations import unquantised, write_variations
from fpet.backbone import create_backbone, load_backbone, save_backbone
from fpet.embedded import default_backbone, task_path
from fpet.header import Method
from fpet.task import Task, new_model
from fpet.untrained import at_middle_block, new_header

EMBEDDED = "embedded"
_ARCHITECTURES: dict[str, tuple[str, dict[str, object]]] = {
    "vit-small": ("vit_small_patch16_224", {}),
    # Computes next to nothing: what is timed is all that is done for a request beside the model.
    "vit-least": ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2}),
}
MODELS = (EMBEDDED, *_ARCHITECTURES)
_CLASSES = 10


@dataclass(frozen=True)
class Tasks:
    """backbone: its file; folder: of the task files; names: of the tasks."""

    backbone: Path
    folder: Path
    names: list[str]


def write_tasks(folder: Path, model: str, embedded: str, count: int) -> Tasks:
    """Writes so many tasks into a new folder, and the backbone beside it if it is not the embedded one.

    model: one of `MODELS`; embedded: task that those of the embedded model are like. Those of another have LoRA and
    token reduction at the middle block, and all its weights are random.
    """
    tasks = folder / "tasks"
    tasks.mkdir(parents=True)
    if model == EMBEDDED:
        path = default_backbone()
        header, adapted = unquantised(Task.load(task_path(embedded)), load_backbone(path))
    else:
        architecture, arguments = _ARCHITECTURES[model]
        path, backbone = folder / "backbone.safetensors", create_backbone(architecture, arguments)
        save_backbone(path, backbone)
        adapter, reducer = Method("lora", {"dim": 8}), at_middle_block(Method("bdm"), backbone.geometry.depth)
        header = new_header(model, tuple(map(str, range(_CLASSES))), backbone, adapter=adapter, reducer=reducer)
        adapted = new_model(header, backbone)
    return Tasks(path, tasks, write_variations(tasks, header, adapted, count))
