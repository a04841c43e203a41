"""A target may name the host, as those of requests to a proxy do."""

from __future__ import annotations

import http.client
import json
import socket

import pictures
import pytest
from serving import Serving

from service.http.limits import MAX_HEAD_BYTES, MAX_PARAMETERS

IMAGE = pictures.png()


def ask(service: Serving, target: str, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of the answer."""
    headers = ["host: y", "content-type: image/png", f"content-length: {len(body)}"]
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall("\r\n".join([f"{method} {target} HTTP/1.1", *headers, "", ""]).encode() + body)
        answer = http.client.HTTPResponse(connection, method=method)
        answer.begin()
        return answer.status, answer.read()


@pytest.mark.parametrize("host", ["http://x", "HTTP://x:8000", "https://[::1]:8000"])
def test_an_absolute_request_target_is_answered_like_its_path(service: Serving, host: str) -> None:
    assert ask(service, f"{host}/livez") == ask(service, "/livez") == (200, b'{"status":"alive"}')
    assert ask(service, f"{host}/v1/tasks/a%20b") == ask(service, "/v1/tasks/a%20b")
    path = "/v1/tasks/digits/classify?top_k=1"
    status, answered = ask(service, f"{host}{path}", "POST", IMAGE)
    (best,) = json.loads(answered)["predictions"]
    assert (status, len(best)) == (200, 1)


@pytest.mark.parametrize("target", ["http://x", "http://x?a=b"])
def test_without_a_path_it_is_the_root(service: Serving, target: str) -> None:
    assert ask(service, target) == ask(service, "/")


@pytest.mark.parametrize("target", ["http:///livez", "http://me@x/livez", "ftp://x/livez"])
def test_what_is_no_host_is_no_path_either(service: Serving, target: str) -> None:
    assert ask(service, target)[0] == 404


@pytest.mark.parametrize("host", ["h#x", "h\\", '"h"', "h:99999", "h:x", "[::1", "h%0"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_can_be_no_host_is_refused(service: Serving, host: str, method: str) -> None:
    status, body = ask(service, f"http://{host}/livez", method)
    assert status == 400
    assert method == "HEAD" or json.loads(body)["error_type"] == "bad_request"


def test_the_head_has_its_limits(service: Serving) -> None:
    for target in (
        f"http://{'x' * MAX_HEAD_BYTES}/livez",
        f"http://x/{'x' * MAX_HEAD_BYTES}",
        f"http://x/livez?{'&' * MAX_PARAMETERS}",
    ):
        assert ask(service, target)[0] == 431
