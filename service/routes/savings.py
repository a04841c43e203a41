"""GET /v1/savings."""

from __future__ import annotations

from fastapi import APIRouter

from service.metrics_snapshot import MetricsSnapshot
from service.model.calibration import Point
from service.model.loaded import LoadedTask
from service.routes.dependencies import MetricsDep, RuntimeDep
from service.routes.described import Described, errors
from service.runtime import Runtime
from service.savings import savings
from service.schemas import CalibrationPoint, Savings, TaskCalibration

router = APIRouter(tags=["savings"], route_class=Described)


@router.get("/v1/savings", responses=errors(503))
def get_savings(runtime: RuntimeDep, metrics: MetricsDep) -> Savings:
    """What token reduction saved since the start, by the same counters as /metrics, and what the baseline rests on."""
    return Savings(
        tasks=savings(MetricsSnapshot(metrics), runtime.metrics.tasks.all()),
        calibration=[
            TaskCalibration(task=task.header.name, points=_points(runtime, task))
            for task in runtime.catalog.entries.serving()
        ],
    )


def _points(runtime: Runtime, task: LoadedTask) -> list[CalibrationPoint]:
    """What the task's baseline rests on as it is served now."""
    instance, _ = runtime.folding.state(task)
    calibration = task.family.timings.calibration(instance is not None)
    return [_point(point, ratio) for point, ratio in zip(calibration.points, calibration.ratios, strict=True)]


def _point(point: Point, ratio: float) -> CalibrationPoint:
    reduced, full = (round(1000 * seconds, 3) for seconds in point.medians)
    return CalibrationPoint(
        batch_size=point.batch_size,
        pairs=len(point.ratios),
        reduced_ms=reduced,
        full_ms=full,
        speedup=round(ratio, 4),
    )
