"""The type of the service's ASGI application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from service.errors import ServiceError
from service.http.body_budget import BodyBudget
from service.metrics import Metrics
from service.processes.cluster import Cluster
from service.runtime import Runtime


class Application(FastAPI):
    """FastAPI with the parts of the service that requests need; `runtime` and `cluster` are set at start-up.

    max_received: bytes that the bodies of requests to infer may take at once; options: those of FastAPI.
    """

    runtime: Runtime
    cluster: Cluster

    def __init__(self, metrics: Metrics, max_received: int, **options: Any) -> None:
        super().__init__(**options)
        self._metrics = metrics
        self.body_budget = budget = BodyBudget(max_received)
        metrics.received_bytes.set_function(lambda: budget.taken)

    @property
    def failed(self) -> bool:
        """Whether the service could not start, or cannot go on."""
        return self.runtime.status == "failed"

    def stop(self) -> None:
        """Begins the shutdown, while requests are still accepted."""
        self.runtime.stop()

    def count_refused(self, error: ServiceError) -> None:
        """Counts what was answered with an error because it is no HTTP, and so is no request."""
        self._metrics.failures.labels(error.error_type).inc()
