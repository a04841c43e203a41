"""Puts the service together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fpet import weights
from service.catalog import Catalog
from service.engine import Engine
from service.errors import ServiceError
from service.failures import ERROR_TYPES, STATUS_CODES, Failure
from service.hardware import pick_device, pick_dtype
from service.metrics import Metrics
from service.middleware import Observed
from service.routes import admin, classify, explain, health, savings, tasks, v2, v2_repository
from service.runtime import running
from service.settings import ALL, Settings

_DESCRIPTION = """Image classifiers from one frozen Vision Transformer, small adapters and token reduction.

Every error is `{"error": sentence, "error_type": word}`."""


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application; its `state.runtime` exists between start-up and shutdown.

    Raises:
        FpetError: if the backbone or the task folder cannot be used.
    """
    metrics = Metrics(STATUS_CODES, ERROR_TYPES)
    device = pick_device(settings.device)
    engine = Engine.start(
        settings.backbone or weights.default_backbone(), device, pick_dtype(settings.dtype, device), metrics
    )
    catalog = Catalog(settings.tasks or weights.tasks_folder(), engine.load, metrics, max_bytes=settings.max_task_bytes)
    catalog.require(set(settings.preload) - {ALL})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(settings, metrics, engine, catalog) as runtime:
            app.state.runtime = runtime
            yield

    async def fail(request: Request, error: Exception) -> Response:  # noqa: ARG001
        failure = Failure.of(error)
        metrics.failures.labels(failure.error_type).inc()
        return failure.response()

    app = FastAPI(title="fpet-serve", description=_DESCRIPTION, lifespan=lifespan)
    for kind in (ServiceError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, fail)
    app.add_middleware(Observed, metrics=metrics, draining=lambda: app.state.runtime.status == "draining")
    for part in (classify, explain, tasks, admin, savings, health, v2, v2_repository):
        app.include_router(part.router)
    return app
