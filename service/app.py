"""Builds the ASGI application: engine, catalog, routes, middleware and exception handlers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import Depends
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

import fpet
from fpet.embedded import default_backbone, tasks_folder
from fpet.hardware.precision import DTYPES
from service.admission import check_queue, find_inferring
from service.application import Application
from service.catalog import Catalog
from service.engine import Engine
from service.errors import ServiceError
from service.hardware import name_dtype, pick_device
from service.http.exchange import Exchange
from service.http.failures import ERROR_TYPES, STATUS_CODES
from service.http.head_requests import HeadAsGet
from service.http.in_flight import InFlight
from service.http.limits import check_body, check_head
from service.http.middleware import Observed, record_failure
from service.logs import log_exchange
from service.metrics import Metrics
from service.model.captures import start_captures
from service.processes.cluster import Cluster
from service.processes.peers import ALONE, Peers
from service.routes import admin, classify, explain, health, savings, tasks, v2, v2_infer, v2_repository
from service.routes.dependencies import client
from service.routes.described import errors
from service.routes.forwarding import REQUEST, ToFirst, answer
from service.runtime import running
from service.settings import ALL, Settings
from service.tracing import Tracing, start_tracing

_DESCRIPTION = """Image classifiers from one frozen Vision Transformer, small adapters and token reduction.

Every error is `{"error": sentence, "error_type": word}`."""

_LAST_SECONDS = 1.0  # for what is left to be done of requests that are cut off

_PUBLIC = (health.router, v2.health, admin.router)  # the last asks for the admin key itself
_PRIVATE = tuple(part.router for part in (classify, v2_infer, explain, tasks, savings, v2, v2_repository))


def create_app(settings: Settings, peers: Peers = ALONE) -> Application:
    """The ASGI application, with its backbone loaded and its task folder opened.

    peers: the other processes of the service, if there are any.

    Raises:
        FpetError: if the backbone or the task folder cannot be used, or traces are asked for and cannot be sent.
    """
    metrics = Metrics(STATUS_CODES, ERROR_TYPES)
    engine = _start_engine(settings, metrics, peers)
    catalog = _open_catalog(settings, metrics, engine, peers)
    tracing, in_flight = start_tracing(settings.otlp_endpoint), InFlight()

    @asynccontextmanager
    async def lifespan(app: Application) -> AsyncIterator[None]:
        async with running(settings, metrics, engine, catalog) as runtime:
            app.runtime, app.cluster = runtime, Cluster(runtime, peers)
            async with app.cluster.answering({REQUEST: partial(answer, app)}), app.cluster.following():
                yield
                # The server has cancelled those that were left: they are yet to be answered, logged and traced.
                await in_flight.wait(_LAST_SECONDS)
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = Application(
        metrics,
        settings.max_received,
        title="fpet-serve",
        version=fpet.__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # to the host that the client names, without its proxy's scheme and path
        # Its own spans name queries, into which clients might write what is secret.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    if not peers.first:
        app.add_middleware(ToFirst, settings=settings, peers=peers)
    _watch_over(app, settings, metrics, tracing, in_flight)
    _include_routes(app)
    return app


def _start_engine(settings: Settings, metrics: Metrics, peers: Peers) -> Engine:
    device, path = pick_device(settings.device), settings.backbone or default_backbone()
    dtype = DTYPES[peers.agreed("dtype", lambda: name_dtype(settings.dtype, device))]
    captures = start_captures(device) if settings.cuda_graphs else None
    return Engine.start(path, device, dtype, metrics, unpacked_bytes=settings.unpacked_bytes, captures=captures)


def _open_catalog(settings: Settings, metrics: Metrics, engine: Engine, peers: Peers) -> Catalog:
    folder, shared = settings.tasks or tasks_folder(), not peers.alone
    catalog = Catalog(folder, engine.load, metrics, max_bytes=settings.max_task_bytes, keeps_content=shared)
    catalog.require(set(settings.preload) - {ALL})
    return catalog


def _include_routes(app: Application) -> None:
    for private in _PRIVATE:  # these first: a path is looked for in one after another, and most requests are to infer
        app.include_router(private, dependencies=[Depends(client)], responses=errors(401, 403))
    for public in _PUBLIC:
        app.include_router(public)


def _watch_over(
    app: Application, settings: Settings, metrics: Metrics, tracing: Tracing | None, in_flight: InFlight
) -> None:
    """Adds what checks and observes every request, and answers every error in one form."""

    async def fail(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 404:
            error = HTTPException(404, "there is no such path; /docs lists them")
        if isinstance(error, HTTPException) and error.status_code == 405:
            allowed = ", ".join(_allowed(request))
            error = HTTPException(405, f"{request.method} is not allowed here, only {allowed}", {"allow": allowed})
        return record_failure(error, Exchange.of(request), metrics).response()

    for kind in (ServiceError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, fail)
    app.add_middleware(HeadAsGet)
    app.add_middleware(
        Observed,
        metrics=metrics,
        checks=[check_body, check_head, lambda scope: check_queue(scope, app.runtime)],
        find_route=find_inferring,
        patience=settings.deadline,
        body_budget=app.body_budget,
        in_flight=in_flight,
        draining=lambda: app.runtime.status == "draining",
        observers=[log_exchange] if tracing is None else [tracing.record, log_exchange],
    )


def _allowed(request: Request) -> list[str]:
    """The methods of a path, which may have several routes; the router names those of the first."""
    every = [route for routes in (request.app, *_PUBLIC, *_PRIVATE) for route in routes.routes]
    routes = [one for one in every if isinstance(one, Route) and one.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods or ()}
    return sorted(methods | {"HEAD"} if "GET" in methods else methods)
