"""What token reduction saved, as the counters of `metrics` tell it."""

from __future__ import annotations

from dataclasses import dataclass

from service.metrics import CALIBRATED, Metrics, Reading
from service.task_labels import OTHER


@dataclass(frozen=True)
class Shadow:
    """Totals over what ran again in both ways, of one task label; agreeing: images with the same label in both."""

    images: int
    agreeing: int
    reduced_seconds: float
    full_seconds: float


@dataclass(frozen=True)
class Saving:
    """Totals over the reduced forwards of one task label."""

    task: str
    images: int
    tokens_in: int
    tokens_out: int
    forward_seconds: float
    baseline_seconds: float
    shadow: Shadow


def savings(metrics: Metrics) -> list[Saving]:
    """What the counters say about reduced forwards, by task label, so that no two pages can disagree.

    They are read once for all of the labels; see `Metrics.read`.
    """
    reading = metrics.read()
    all_labels = [_saving(reading, task) for task in metrics.tasks.all()]
    return [saving for saving in all_labels if saving.task != OTHER or saving.images]


def _saving(reading: Reading, task: str) -> Saving:
    def reduced(name: str) -> float:
        return reading.value(f"{name}_total", task=task, tokens="reduced")

    return Saving(
        task=task,
        images=int(reduced("images")),
        tokens_in=int(reduced("tokens_in")),
        tokens_out=int(reduced("tokens_out")),
        forward_seconds=reduced("forward_seconds"),
        baseline_seconds=reading.value("forward_baseline_seconds_total", task=task, source=CALIBRATED),
        shadow=_shadow(reading, task),
    )


def _shadow(reading: Reading, task: str) -> Shadow:
    agreeing, others = (reading.value("shadow_agreement_total", task=task, agree=agree) for agree in ("true", "false"))
    reduced, full = (reading.value("shadow_seconds_total", task=task, tokens=tokens) for tokens in ("reduced", "full"))
    return Shadow(images=int(agreeing + others), agreeing=int(agreeing), reduced_seconds=reduced, full_seconds=full)
