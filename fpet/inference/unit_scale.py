"""Tasks whose adapters differ in their scale alone, as tasks of one family.

A search for the scale, as in the paper's recipe, leaves tasks of one method with different ones. A number is no tensor
that could be stacked along the batch; but a method adds s * (U z + b), which is (s U) z + s b.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from fpet.adapters import ADAPTERS
from fpet.errors import TaskError, UnsupportedError
from fpet.header import Method
from fpet.registry import completed
from fpet.task import Task


def at_unit_scale(task: Task) -> Task:
    """The task with its adapter's scale multiplied into the weights that it scales (`Adapter.scaled`), in float32.

    It answers as before, up to rounding. An adapter that names no such weights, or whose scale is 1, is left as it is.

    Raises:
        TaskError: if the adapter's package cannot be loaded.
    """
    if task.header.adapter.kind not in ADAPTERS:
        return task  # for `Task.build` to refuse, as a scale that is no number
    try:
        method = completed(ADAPTERS, task.header.adapter)
    except UnsupportedError as error:
        raise TaskError(f"{task.path}: {error}") from error
    scale = method.arguments.get("scale")
    weights = tuple(f".{name}" for name in ADAPTERS[method.kind].scaled)
    if not weights or scale == 1 or not isinstance(scale, float):
        return task

    def scaled(name: str, tensor: Tensor) -> Tensor:
        # A quantised matrix is scaled by its mean and deviation. Integers in a wrong place stay, to be refused later.
        carries = name.startswith("adapter.") and name.removesuffix(".stats").endswith(weights)
        return tensor * scale if carries and tensor.is_floating_point() else tensor

    tensors = {name: scaled(name, tensor) for name, tensor in task.tensors.items()}
    unit = Method(method.kind, {**method.arguments, "scale": 1.0})
    return replace(task, header=replace(task.header, adapter=unit), tensors=tensors)
