"""The Open Inference Protocol under /v2: the server, its models, and what they did."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client.registry import Collector

from service.errors import UnknownTaskError
from service.metrics import MAX_TASK_LABELS
from service.metrics_snapshot import MetricsSnapshot
from service.model.loaded import LoadedTask
from service.routes.dependencies import ClusterDep, MetricsDep, RuntimeDep, runtime_of
from service.routes.described import Described, errors
from service.statistics import Counted
from service.v2 import describe
from service.v2.schemas import (
    AllStatistics,
    Live,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    Ready,
    ServerMetadata,
)

router = APIRouter(tags=["open inference protocol"], route_class=Described)
health = APIRouter(tags=["open inference protocol"], route_class=Described)

MODEL = "/v2/models/{model}"
VERSION = MODEL + "/versions/{version}"
_GET: dict[str, Any] = {"responses": errors(404, 422, 503), "response_model_exclude_none": True}


async def _latest(request: Request, model: str) -> LoadedTask:
    runtime = runtime_of(request)
    runtime.catalog.entries.require(model)  # what there is not will not be there once the service is ready
    runtime.require_ready()
    return runtime.catalog.entries.loaded(model)


ModelDep = Annotated[LoadedTask, Depends(_latest)]


async def _at_version(task: ModelDep, version: str) -> None:
    if version != str(task.generation):
        raise UnknownTaskError(f"the model {task.header.name!r} is at version {task.generation}, not {version[:20]!r}")


# Options of the second path of a route, which names a version.
AT_VERSION: dict[str, Any] = {
    "dependencies": [Depends(_at_version)],
    "description": "The same, if the model is at this version.",
}


@router.get("/v2")
async def get_server() -> ServerMetadata:
    """The service, and the extensions of the protocol that it speaks."""
    return describe.server()


@health.get("/v2/health/live", responses={503: {"model": Live}})
async def live(cluster: ClusterDep, response: Response) -> Live:
    """The service answers; 503 while a batch is stuck, which it would not be after a new start."""
    is_live = not (await cluster.health()).stuck
    response.status_code = 200 if is_live else 503
    return Live(live=is_live)


@health.get("/v2/health/ready", responses={503: {"model": Ready}})
async def ready(cluster: ClusterDep, response: Response) -> Ready:
    """503 until the tasks are loaded and warm, while a batch is stuck, and from the moment that the service is asked to
    stop."""
    is_ready = (await cluster.health()).ready
    response.status_code = 200 if is_ready else 503
    return Ready(ready=is_ready)


@router.get("/v2/models/stats", responses=errors(503))
def all_statistics(runtime: RuntimeDep, metrics: MetricsDep) -> AllStatistics:
    """What every model did since the service started. Beyond the first hundred tasks there are no counters."""
    return _statistics(
        metrics, *(task for task in runtime.catalog.entries.serving() if runtime.statistics.has(task.header.name))
    )


@router.get(VERSION, **AT_VERSION, **_GET)
@router.get(MODEL, **_GET)
async def get_model(task: ModelDep) -> ModelMetadata:
    """A model's versions, input and output."""
    return describe.metadata(task)


@router.get(VERSION + "/ready", **AT_VERSION, **_GET)
@router.get(MODEL + "/ready", **_GET)
async def model_ready(task: ModelDep) -> ModelReady:
    """Whether a model answers: any status but 200 says that it does not."""
    return ModelReady(name=task.header.name, ready=True)


@router.get(VERSION + "/config", **AT_VERSION, **_GET)
@router.get(MODEL + "/config", **_GET)
async def get_config(task: ModelDep, runtime: RuntimeDep) -> ModelConfig:
    """A model as Triton would configure it; its `parameters` list the other inputs and outputs."""
    return describe.config(task, runtime.settings)


@router.get(VERSION + "/stats", **AT_VERSION, **_GET)
@router.get(MODEL + "/stats", **_GET)
def model_statistics(task: ModelDep, runtime: RuntimeDep, metrics: MetricsDep) -> AllStatistics:
    """What a model did since the service started, over all of its versions; 404 if that is not counted."""
    if not runtime.statistics.has(task.header.name):
        raise UnknownTaskError(f"{task.header.name!r} has no statistics: {MAX_TASK_LABELS} other tasks have them")
    return _statistics(metrics, task)


def _statistics(metrics: Collector, *tasks: LoadedTask) -> AllStatistics:
    counted = Counted(MetricsSnapshot(metrics))
    return AllStatistics(model_stats=[describe.statistics(task, counted) for task in tasks])
