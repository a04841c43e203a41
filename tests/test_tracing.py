"""Traces go to a collector that was asked for, and to nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pictures
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from serving import Files, serving, small_settings
from test_logs import logging_to

from fpet.errors import UnsupportedError
from service.http.exchange import Exchange
from service.logs import JsonFormatter
from service.settings import Settings
from service.tracing import END_THREAD, start_tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
IMAGE = pictures.png()


class Collector(ThreadingHTTPServer):
    """Takes traces as collectors do."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, bytes]] = []
        self.asked, self.answering = threading.Event(), threading.Event()
        self.answering.set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for _, body in self.received]

    def spans(self) -> list[Span]:
        every = [part for request in self.requests() for part in request.resource_spans]
        return [span for part in every for scope in part.scope_spans for span in scope.spans]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, body))
        self.server.asked.set()
        self.server.answering.wait()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


def attributes(span: Span) -> dict[str, object]:
    def value(one: object) -> object:
        kind = one.WhichOneof("value")  # type: ignore[attr-defined]
        found = getattr(one, kind)
        return [value(item) for item in found.values] if kind == "array_value" else found

    return {pair.key: value(pair.value) for pair in span.attributes}


def resource_of(collector: Collector) -> dict[str, str]:
    resource = collector.requests()[0].resource_spans[0].resource
    return {pair.key: pair.value.string_value for pair in resource.attributes}


@pytest.fixture(scope="module")
def traced(small_files: Files) -> tuple[Collector, list[dict[str, object]]]:
    """What a service sent that was asked for an image twice, failed once, and ended; and what it logged."""
    with collecting() as collector, logging_to(JsonFormatter()) as log:
        with serving(small_settings(small_files, otlp_endpoint=collector.address)) as running:
            parent = [
                ("content-type", "image/png"),
                ("traceparent", f"00-{TRACE}-{PARENT}-01"),
                ("tracestate", "a=1,b=2"),
                ("tracestate", "c=3"),
            ]
            path = "/v1/tasks/digits/classify"
            assert running.client.post(path, content=IMAGE, headers=parent).status_code == 200
            assert running.client.post("/v1/classify?tasks=digits,plain", content=IMAGE, headers=parent).is_success
            assert running.client.get("/sesame?key=sesame").status_code == 404
            assert all(running.client.get(path).is_success for path in ("/readyz", "/metrics"))
            assert running.classify(IMAGE, "plain").status_code == 200
            del running.runtime.inferences
            assert running.classify(IMAGE).status_code == 500
        return collector, [json.loads(line) for line in log.lines]


def test_a_request_is_a_span_with_its_stages_within(traced: tuple[Collector, list[dict[str, object]]]) -> None:
    collector, _ = traced
    assert {path for path, _ in collector.received} == {"/v1/traces"}
    spans = collector.spans()
    assert not {"GET /readyz", "GET /metrics"} & {span.name for span in spans}  # which are asked all the time
    server = next(span for span in spans if span.name == "POST /v1/tasks/{task}/classify")
    assert server.kind == Span.SpanKind.SPAN_KIND_SERVER
    assert (server.trace_id.hex(), server.parent_span_id.hex(), server.trace_state) == (TRACE, PARENT, "a=1,b=2,c=3")
    found = attributes(server)
    assert len(str(found.pop("fpet.request_id"))) == 32
    assert isinstance(found.pop("http.response.body.size"), int)
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/tasks/{task}/classify",
        "http.response.status_code": 200,
        "http.request.body.size": len(IMAGE),
        "client.address": "127.0.0.1",
        "fpet.tasks": ["digits"],
    }
    stages = [span for span in spans if span.parent_span_id == server.span_id]
    assert [span.name for span in stages] == ["decode", "queue", "forward"]
    times = [server.start_time_unix_nano]
    for span in stages:
        assert span.trace_id == server.trace_id
        times += [span.start_time_unix_nano, span.end_time_unix_nano]
        assert attributes(span) == {
            "fpet.task": "digits",
            "fpet.images": 1,
            "fpet.tokens.in": 17,
            "fpet.tokens.out": 9,
        }
    assert [*times, server.end_time_unix_nano] == sorted([*times, server.end_time_unix_nano])


def test_each_task_has_its_stages(traced: tuple[Collector, list[dict[str, object]]]) -> None:
    spans = traced[0].spans()
    server = next(span for span in spans if span.name == "POST /v1/classify")
    forwards = [span for span in spans if span.parent_span_id == server.span_id and span.name == "forward"]
    assert [attributes(span)["fpet.task"] for span in forwards] == ["digits", "plain"]


def test_a_request_without_a_parent_begins_a_trace_that_the_log_names(
    traced: tuple[Collector, list[dict[str, object]]],
) -> None:
    collector, log = traced
    fresh = [span for span in collector.spans() if span.name.startswith("POST") and not span.parent_span_id]
    logged = {entry["request_id"]: entry["trace_id"] for entry in log if "trace_id" in entry}
    assert len(fresh) == 2
    for span in fresh:
        assert logged[attributes(span)["fpet.request_id"]] == span.trace_id.hex()


def test_a_failure_is_marked(traced: tuple[Collector, list[dict[str, object]]]) -> None:
    (failed,) = [span for span in traced[0].spans() if span.status.code == Status.StatusCode.STATUS_CODE_ERROR]
    assert attributes(failed)["http.response.status_code"] == 500
    assert attributes(failed)["error.type"] == "internal_error"


def test_the_service_names_itself_and_no_query(traced: tuple[Collector, list[dict[str, object]]]) -> None:
    collector, _ = traced
    assert resource_of(collector)["service.name"] == "fpet-serve"
    assert not any(b"sesame" in body for _, body in collector.received)


def test_the_standard_variables_ask_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
        tracing = start_tracing(Settings().otlp_endpoint)
        assert tracing is not None
        tracing.record(Exchange("an-id", "GET", None, None, None))
        tracing.close()
    ((path, _),) = collector.received
    assert path == "/v1/traces"
    assert resource_of(collector)["service.name"] == "mine"
    assert [span.name for span in collector.spans()] == ["GET"]


def test_a_collector_that_does_not_answer_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as collector:
        collector.answering.clear()
        tracing = start_tracing(collector.address)
        assert tracing is not None
        for _ in range(1000):  # more than are sent at once
            tracing.record(Exchange("an-id", "GET", None, None, None))
        collector.asked.wait()
        tracing.close(0.1)
        (record,) = caplog.records
        assert record.getMessage() == "the collector did not take the last traces within 0.1 seconds"
        collector.answering.set()
        for thread in threading.enumerate():
            if thread.name == END_THREAD:
                thread.join()
        assert len(collector.spans()) == 1000  # which are not lost where the process goes on


def test_nobody_asks_and_nothing_is_imported() -> None:
    code = (
        "import sys; from service.tracing import END_THREAD, start_tracing; assert start_tracing(None) is None; "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], env={}, check=True)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(UnsupportedError, match="which the extra `otel` of this package installs"):
        start_tracing("http://127.0.0.1:4318")


def test_a_variable_of_the_platform_does_not_keep_the_service_from_starting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert start_tracing(None) is None
    (record,) = caplog.records
    assert record.getMessage().startswith("OTEL_EXPORTER_OTLP_ENDPOINT is set, but traces need OpenTelemetry, which")


@pytest.mark.parametrize("exporter", ["none", "console", "console, prometheus"])
def test_who_wants_other_exporters_sends_nothing(exporter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", exporter)
    assert start_tracing(None) is None
    tracing = start_tracing("http://127.0.0.1:4318")  # which asks by itself
    assert tracing is not None
    tracing.close()


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "they are sent by http/protobuf, not by 'grpc'"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "they are sent by http/protobuf, not by 'http/json'"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "256", "max_export_batch_size must be less"),
    ],
)
def test_variables_that_cannot_be_followed_keep_nothing_from_starting(
    variable: str, value: str, why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setenv(variable, value)
    assert start_tracing(None) is None
    (record,) = caplog.records
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT is set, but no traces can be sent: {why}" in record.getMessage()


def test_a_variable_that_cannot_be_followed_is_named_to_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "256")
    with pytest.raises(UnsupportedError, match="no traces can be sent: max_export_batch_size"):
        start_tracing("http://127.0.0.1:4318")


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://collector:4317", "http:///v1"])
def test_an_endpoint_is_an_address(endpoint: str) -> None:
    with pytest.raises(ValueError, match="otlp_endpoint"):
        Settings(otlp_endpoint=endpoint)
