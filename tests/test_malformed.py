"""What is no HTTP is refused in the form of every error, and what asks for another protocol is served in this one."""

from __future__ import annotations

import http.client
import json
import socket

import pytest
from classify_requests import CLASSIFY
from serving import Serving

CHUNKED = f"POST {CLASSIFY} HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("sent", ["garbage\r\n\r\n", f"{CHUNKED}zz\r\n"], ids=["head", "chunk"])
def test_what_is_no_http_is_an_error_like_any(service: Serving, sent: str) -> None:
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(sent.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        told = {"error": "Invalid HTTP request received.", "error_type": "bad_request"}
        assert (answer.status, json.loads(answer.read())) == (400, told)
        assert (answer.getheader("connection"), bool(answer.getheader("x-request-id"))) == ("close", True)
        assert connection.recv(1) == b""


def test_another_protocol_is_not_spoken(service: Serving, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2-settings": "AAMAAABkAAQAAP__"}
    assert service.client.get("/livez", headers=headers).json() == {"status": "alive"}
    assert not caplog.records
