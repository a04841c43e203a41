"""/livez, /readyz, /metrics and the way from / to the documentation: outside the queue."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.routes.common import RuntimeDep
from service.schemas import Status

router = APIRouter(tags=["health"])


@router.get("/livez")
async def livez() -> Status:
    """The process answers."""
    return Status(status="alive")


@router.get("/readyz", responses={503: {"model": Status}})
async def readyz(runtime: RuntimeDep, response: Response) -> Status:
    """503 until the tasks are loaded and warm, and from the moment that the service is asked to stop."""
    response.status_code = 200 if runtime.status == "ready" else 503
    return Status(status=runtime.status)


@router.get("/metrics", response_class=Response)
async def metrics(runtime: RuntimeDep) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(generate_latest(runtime.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """To the documentation."""
    return RedirectResponse("/docs")
