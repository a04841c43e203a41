"""The model that a training begins with."""

from __future__ import annotations

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone
from fpet.errors import TaskError
from fpet.header import TaskHeader
from fpet.reducers import REDUCERS
from fpet.registry import completed
from fpet.task import Task, new_model
from fpet.vit import AdaptedViT


def first_model(header: TaskHeader, backbone: Backbone, start: Task | None, drop_path: float = 0.0) -> AdaptedViT:
    """A model as of `new_model`; with `start` one that has its adapter, and of its reduction and head what
    `kept_parts` names.

    Raises:
        TaskError: if `start` belongs to another backbone or has another adapter.
        UnsupportedError: as `new_model`.
    """
    model = new_model(header, backbone, drop_path=drop_path)
    if start is not None:
        begun, own = start.to_train(backbone).trainable(), model.trainable()
        for part in kept_parts(header, start):
            own[part].load_state_dict(begun[part].state_dict())
    return model


def kept_parts(header: TaskHeader, start: Task) -> tuple[str, ...]:
    """What a training of the task `header` that begins with `start` takes from it: `adapter`; `reducer`, if the token
    reduction is the same with the same arguments; `head`, if the labels and its number of bits are.

    Raises:
        TaskError: if the adapter is another or has other arguments.
    """
    trained, own = (completed(ADAPTERS, method) for method in (start.header.adapter, header.adapter))
    if trained != own:
        raise TaskError(
            f"{start.path}: what begins with it has its adapter, {trained.kind} with {trained.arguments}, not "
            f"{own.kind} with {own.arguments}"
        )
    kept = ["adapter"]
    if completed(REDUCERS, start.header.reducer) == completed(REDUCERS, header.reducer):
        kept.append("reducer")
    if (start.header.labels, start.header.head) == (header.labels, header.head):
        kept.append("head")
    return tuple(kept)
