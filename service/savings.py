"""What token reduction saved, computed from the counters of `metrics`."""

from __future__ import annotations

from collections.abc import Iterable

from service.metrics import CALIBRATED
from service.metrics_snapshot import MetricsSnapshot
from service.schemas import ShadowSavings, TaskSavings
from service.task_labels import OTHER


def savings(snapshot: MetricsSnapshot, labels: Iterable[str]) -> list[TaskSavings]:
    """The savings of each task label by one snapshot of the counters; `_other` is left out if it has no images."""
    all_labels = [_saving(snapshot, task) for task in labels]
    return [saving for saving in all_labels if saving.task != OTHER or saving.images]


def _saving(snapshot: MetricsSnapshot, task: str) -> TaskSavings:
    def reduced(name: str) -> float:
        return snapshot.value(f"{name}_total", task=task, tokens="reduced")

    calibrated = snapshot.value("forward_calibrated_seconds_total", task=task)
    baseline = snapshot.value("forward_baseline_seconds_total", task=task, source=CALIBRATED)
    return TaskSavings(
        task=task,
        images=int(reduced("images")),
        tokens_in=int(reduced("tokens_in")),
        tokens_out=int(reduced("tokens_out")),
        forward_seconds=reduced("forward_seconds"),
        calibrated_seconds=calibrated,
        baseline_seconds=baseline,
        speedup=baseline / calibrated if calibrated > 0 and baseline > 0 else None,
        shadow=_shadow(snapshot, task),
    )


def _shadow(snapshot: MetricsSnapshot, task: str) -> ShadowSavings | None:
    agreeing, others = (snapshot.value("shadow_agreement_total", task=task, agree=agree) for agree in ("true", "false"))
    reduced, full = (snapshot.value("shadow_seconds_total", task=task, tokens=tokens) for tokens in ("reduced", "full"))
    images = agreeing + others
    if not (images and reduced and full):  # it may be taken between the counters of the first shadow
        return None
    return ShadowSavings(
        images=int(images),
        agreement=agreeing / images,
        reduced_seconds=reduced,
        full_seconds=full,
        speedup=full / reduced,
    )
