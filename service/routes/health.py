"""/livez, /readyz, /metrics and the way from / to the documentation: outside the queue."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.routes.dependencies import ClusterDep
from service.routes.described import Described, errors
from service.schemas import Status

router = APIRouter(tags=["health"], route_class=Described)

_TEXT: dict[str, Any] = {"schema": {"type": "string"}}


@router.get("/livez", responses={503: {"model": Status}})
async def livez(cluster: ClusterDep, response: Response) -> Status:
    """The service answers; 503 while a batch is stuck, which it would not be after a new start."""
    health = await cluster.health()
    response.status_code = 503 if health.stuck else 200
    return Status(status="stuck" if health.stuck else "alive")


@router.get("/readyz", responses={503: {"model": Status}})
async def readyz(cluster: ClusterDep, response: Response) -> Status:
    """503 until the tasks are loaded and warm, while a batch is stuck, and from the moment that the service is asked to
    stop."""
    health = await cluster.health()
    response.status_code = 200 if health.ready else 503
    return Status(status="stuck" if health.stuck and health.status == "ready" else health.status)


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT}}, **errors(503)},
)
async def metrics(request: Request, cluster: ClusterDep) -> Response:
    """Metrics in Prometheus' text format, or in that of OpenMetrics."""
    text, media_type = await cluster.exposition.text(request.headers.get("accept", ""))
    return Response(text, media_type=media_type)


@router.get("/", include_in_schema=False)
async def root(request: Request) -> RedirectResponse:
    """To the documentation."""
    return RedirectResponse(f"{request.scope['root_path']}/docs")
