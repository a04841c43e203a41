"""What is no HTTP is refused in the form of every error, and what asks for another protocol is served in this one."""

from __future__ import annotations

import http.client
import json
import socket

import pytest
from classify_requests import CLASSIFY
from serving import Serving
from test_logs import logging_to

from service.http.request_id import HEADER
from service.logs import JsonFormatter

CHUNKED = f"POST {CLASSIFY} HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("sent", ["garbage\r\n\r\n", f"{CHUNKED}zz\r\n"], ids=["head", "chunk"])
def test_what_is_no_http_is_an_error_like_any(service: Serving, sent: str) -> None:
    before = service.metric("failures_total", reason="bad_request")
    with socket.create_connection(service.address, timeout=30) as connection, logging_to(JsonFormatter()) as log:
        connection.sendall(sent.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        told = {"error": "Invalid HTTP request received.", "error_type": "bad_request"}
        assert (answer.status, json.loads(answer.read())) == (400, told)
        assert answer.getheader("connection") == "close"
        assert connection.recv(1) == b""
        service.until(lambda: bool(log.of(answer.headers[HEADER])))
    (line,) = log.of(answer.headers[HEADER])
    assert (line["client"], line["status"], line["error_type"]) == ("127.0.0.1", 400, "bad_request")
    assert service.metric("failures_total", reason="bad_request") - before == 1


@pytest.mark.parametrize("begun", ["", "1\r\nx\r\n"], ids=["first chunk", "second chunk"])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "behind its head"])
def test_a_body_that_is_no_http_is_that_of_its_request(service: Serving, begun: str, at_once: bool) -> None:
    """Answered under the client's own id, and logged and counted as what it is told."""
    of, chunks = {"code": "400", "task": "digits"}, f"{begun}zz\r\nmore that is none\r\n"
    before = service.metric("requests_total", **of), service.metric("failures_total", reason="bad_request")
    head = CHUNKED.replace("host: x", f"host: x\r\n{HEADER}: mine")
    with socket.create_connection(service.address, timeout=30) as connection, logging_to(JsonFormatter()) as log:
        for part in [head + chunks] if at_once else [head, chunks]:
            connection.sendall(part.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.getheader(HEADER), answer.getheader("connection")) == (400, "mine", "close")
        assert json.loads(answer.read())["error_type"] == "bad_request"
        assert connection.recv(1) == b""
        service.until(lambda: bool(log.of("mine")))
    (line,) = log.of("mine")
    assert (line["status"], line["error_type"]) == (400, "bad_request")
    after = service.metric("requests_total", **of), service.metric("failures_total", reason="bad_request")
    assert [last - first for first, last in zip(before, after, strict=True)] == [1, 1]


def test_another_protocol_is_not_spoken(service: Serving, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2-settings": "AAMAAABkAAQAAP__"}
    assert service.client.get("/livez", headers=headers).json() == {"status": "alive"}
    assert not caplog.records
