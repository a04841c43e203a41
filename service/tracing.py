"""Traces by OpenTelemetry, for those who ask for them: a span a request, and within it decode, queue and forward.

Spans are made of a finished exchange, so that serving it costs nothing more where nobody asks.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING

import fpet
from fpet.errors import UnsupportedError
from service.ending import TRACES_SECONDS
from service.http.exchange import Exchange, Inferred

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider

logger = logging.getLogger(__name__)

END_THREAD = "fpet-traces-end"

_NAME = "fpet-serve"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


def start_tracing(endpoint: str | None) -> Tracing | None:
    """Sends traces to a collector: `endpoint`, or else the one that the standard environment variables name.

    Headers, timeouts, sampling and the service's name come from OpenTelemetry's own variables. None without a
    collector, or where OTEL_TRACES_EXPORTER asks for other exporters than otlp; nothing of OpenTelemetry's SDK is
    imported then. None too, with a warning, if only variables ask and no traces can be sent as they say.

    Raises:
        UnsupportedError: if `endpoint` asks, and the packages are not installed or a variable has a wrong value.
    """
    asking = _asking_variable()
    if endpoint is None and asking is None:
        return None
    try:
        return Tracing(_provider(endpoint))
    except (ImportError, ValueError) as error:
        why = f"no traces can be sent: {error}"
        if isinstance(error, ImportError):
            why = f"traces need OpenTelemetry, which the extra `otel` of this package installs ({error})"
        if endpoint is None:  # platforms set such a variable for whatever they run
            logger.warning("%s is set, but %s", asking, why)
            return None
        raise UnsupportedError(why) from error


def _asking_variable() -> str | None:
    """The environment variable that names a collector of traces, if one does and they are wanted there."""
    exporters = os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"
    wanted = "otlp" in (exporter.strip() for exporter in exporters.split(","))
    return next((name for name in _ENDPOINTS if os.environ.get(name)), None) if wanted else None


def _provider(endpoint: str | None) -> TracerProvider:
    """Exports to `endpoint`, or to what the variables name.

    Raises:
        ImportError: if OpenTelemetry is not installed.
        ValueError: if a variable has a value that the exporter refuses, or asks for another protocol.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), _PROTOCOL)
    if endpoint is None and protocol != _PROTOCOL:
        raise ValueError(f"they are sent by {_PROTOCOL}, not by {protocol!r}")
    resource = Resource({"service.name": _NAME, "service.version": fpet.__version__})
    provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()))
    exporter = OTLPSpanExporter(endpoint=endpoint and endpoint.rstrip("/") + "/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


class Tracing:
    """Spans by OpenTelemetry's conventions for HTTP servers, with attributes `fpet.*` of ours."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(_NAME)

    def record(self, exchange: Exchange) -> None:
        """Sends the spans of a finished exchange, below the client's own if it names one, and notes their trace.

        Of health and metrics there are none: they would be most of what a collector gets.
        """
        if exchange.probes:
            return
        from opentelemetry.trace import SpanKind, StatusCode, format_trace_id, set_span_in_context  # noqa: PLC0415

        span = self._tracer.start_span(
            f"{exchange.method} {exchange.route}" if exchange.route else exchange.method,
            context=_parent(exchange),
            kind=SpanKind.SERVER,
            attributes=_attributes(exchange),
            start_time=_nanoseconds(exchange.at),
        )
        if exchange.status >= 500:
            span.set_status(StatusCode.ERROR)
        within = set_span_in_context(span)
        for one in exchange.inferred:
            self._stages(one, within)
        span.end(_nanoseconds(exchange.at + exchange.seconds))
        if span.get_span_context().is_valid:  # it is not if OTEL_SDK_DISABLED says so
            exchange.trace_id = format_trace_id(span.get_span_context().trace_id)

    def _stages(self, one: Inferred, within: Context) -> None:
        attributes: dict[str, str | int] = {
            "fpet.task": one.task,
            "fpet.images": one.images,
            "fpet.tokens.in": one.tokens_in,
            "fpet.tokens.out": one.tokens_out,
        }
        start = one.at - one.inference - one.queue - one.decode
        for name, seconds in (("decode", one.decode), ("queue", one.queue), ("forward", one.inference)):
            end = start + seconds
            span = self._tracer.start_span(name, context=within, attributes=attributes, start_time=_nanoseconds(start))
            span.end(_nanoseconds(end))
            start = end

    def close(self, seconds: float = TRACES_SECONDS) -> None:
        """Sends what is left, for at most so many seconds; the rest is lost, which the log says."""
        # The exporter has a timeout for each batch, the SDK one for all, and none that could be given. What takes
        # longer is left to a thread that does not keep the process from ending.
        ending = threading.Thread(target=self._provider.shutdown, name=END_THREAD, daemon=True)
        ending.start()
        ending.join(seconds)
        if ending.is_alive():
            logger.warning("the collector did not take the last traces within %g seconds", seconds)


def _parent(exchange: Exchange) -> Context:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    carrier = {"traceparent": exchange.traceparent, "tracestate": exchange.tracestate}
    return TraceContextTextMapPropagator().extract({name: value for name, value in carrier.items() if value})


def _attributes(exchange: Exchange) -> dict[str, str | int | list[str]]:
    attributes = {
        "http.request.method": exchange.method,
        "http.route": exchange.route,
        "http.response.status_code": exchange.status,
        "http.request.body.size": exchange.received,
        "http.response.body.size": exchange.sent,
        "client.address": exchange.client,
        "error.type": exchange.error_type,
        "fpet.request_id": exchange.id,
        "fpet.tasks": list(exchange.tasks),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
