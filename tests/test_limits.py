"""What is in front of a body has limits too, and so has the time that it takes to come."""

from __future__ import annotations

import http.client
import json
import socket
import string
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import httpx
import pictures
import pytest
from pydantic import ValidationError
from serving import Files, Serving, serving, small_settings

from service.http.limits import MAX_HEAD_BYTES, MAX_HEADERS, MAX_PARAMETERS
from service.schemas import EncodedImages

CLASSIFY = "/v1/tasks/digits/classify"
SECONDS = 15  # half of those that a service waits for the rest of a body by default


def refused(answer: httpx.Response) -> str:
    assert (answer.status_code, answer.json()["error_type"]) == (431, "head_too_large")
    message: str = answer.json()["error"]
    return message


def test_headers_are_counted(service: Serving) -> None:
    own = len(service.client.get("/livez").request.headers)
    headers = {f"x-{i}": "" for i in range(MAX_HEADERS - own)}
    assert service.client.get("/livez", headers=headers).status_code == 200
    answer = service.client.get("/livez", headers=headers | {"x-last": ""})
    assert refused(answer) == f"the request has {MAX_HEADERS + 1} headers; the limit is {MAX_HEADERS}"
    assert answer.headers["x-request-id"]


def test_their_bytes_are_counted(service: Serving) -> None:
    assert service.client.get("/livez", headers={"x-long": "x" * (MAX_HEAD_BYTES - 1000)}).status_code == 200
    answer = service.client.get("/livez", headers={"x-long": "x" * MAX_HEAD_BYTES})
    assert f"the limit is {MAX_HEAD_BYTES}" in refused(answer)
    assert service.client.get("/livez?" + "x" * MAX_HEAD_BYTES).status_code == 431
    assert service.client.get("/" + "x" * MAX_HEAD_BYTES).status_code == 431


def test_parameters_are_counted(service: Serving) -> None:
    many = [("outputs", "logits")] * MAX_PARAMETERS
    image, headers = pictures.png(), {"content-type": "image/png"}
    assert service.client.post(CLASSIFY, params=many, content=image, headers=headers).status_code == 200
    refused(service.client.post(CLASSIFY, params=[*many, ("top_k", "1")], content=image, headers=headers))


@pytest.mark.parametrize(
    "path",
    ["/metrics%0a", "/metrics%0A?x", "/v1%2fsavings", "/v1%2Ftasks/x", "/livez%c2%85", "/%6detrics", "/%6Detrics"],
)
def test_a_path_that_a_proxy_takes_for_another_is_refused(service: Serving, path: str) -> None:
    answer = service.client.get(path)
    assert (answer.status_code, answer.json()["error_type"]) == (400, "bad_request")
    assert "the path has an encoded slash, letter" in answer.json()["error"]


def test_no_character_of_a_path_but_what_needs_it_may_be_encoded(service: Serving) -> None:
    """As the URI would be one and the same (RFC 3986, section 6.2.2.2), but not to every proxy."""
    unreserved = set(string.ascii_letters + string.digits + "-._~")
    refused = {
        chr(code)
        for code in range(0x20, 0x7F)
        for digits in (f"{code:02x}", f"{code:02X}")
        if service.client.get(httpx.URL(f"/v1/tasks/x%{digits}")).status_code == 400
    }
    assert refused == unreserved | {"/"}


@pytest.mark.parametrize("path", [CLASSIFY, "/v2/models/digits/infer"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}")], ids=["arrays", "objects"])
def test_deep_json_is_refused(service: Serving, path: str, opening: str, closing: str) -> None:
    deep = opening * 10_000 + "1" + closing * 10_000
    answer = service.client.post(path, content=f'{{"images": {deep}}}', headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error_type"]) == (422, "invalid_request")
    assert "recursion limit" in answer.json()["error"]


@pytest.mark.parametrize("path", [CLASSIFY, "/v2/models/digits/infer"])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        (f"[1{',1' * 2**20}]", "values"),
        (f"[[]{',[]' * 2**16}]", "arrays and objects"),
        ("{" + ",".join(f'"{i}":1' for i in range(2**14)) + "}", "fields"),
    ],
    ids=["values", "containers", "fields"],
)
def test_wide_json_is_refused_unread(service: Serving, path: str, content: str, what: str) -> None:
    answer = service.client.post(path, content=f'{{"images": {content}}}', headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error_type"]) == (413, "too_large")
    assert answer.json()["error"].split(";")[0].endswith(what)


def test_of_many_wrong_images_the_first_is_named(service: Serving) -> None:
    wrong = {"images": ["", *range(1000)]}
    answer = service.client.post(CLASSIFY, json=wrong)
    assert (answer.status_code, answer.json()["error_type"]) == (422, "invalid_request")
    assert answer.json()["error"].startswith("images.1: ")
    with pytest.raises(ValidationError) as caught:
        EncodedImages.model_validate(wrong)
    assert caught.value.error_count() == 1  # each would take memory


def test_what_is_no_http_behind_an_early_answer_closes_the_connection(
    service: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing can be answered twice."""
    head = "POST /v1/tasks/nope/classify HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, bool(answer.read())) == (404, True)
        connection.sendall(b"zz\r\n")
        assert connection.recv(1000) == b""
    assert not [record for record in caplog.records if record.name == "asyncio"]


def test_a_head_without_end_is_cut_off(service: Serving) -> None:
    """Whatever arrives is not collected until memory is full."""
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx-long: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"x" * 4000 * MAX_HEAD_BYTES)
    assert service.client.get("/livez").status_code == 200


def test_a_head_too_long_is_not_read_though_it_came_at_once(service: Serving) -> None:
    """Its many lines would take long, while everybody waits."""
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * (MAX_HEAD_BYTES * 3 // 4) + b"\r\n")
        answer = http.client.HTTPResponse(connection)
        with suppress(ConnectionResetError):  # for it goes on when the connection ends
            answer.begin()
            assert answer.status == 400  # a head that was read is answered with 431


@pytest.mark.parametrize(
    "headers",
    [["content-length: 5", "transfer-encoding: chunked"], ["Transfer-Encoding: Chunked", "Content-Length: 3"]],
)
@pytest.mark.parametrize("more", [[], ["x: y"] * MAX_HEADERS], ids=["little", "too much"])
@pytest.mark.parametrize("path", [CLASSIFY, "/nowhere"])
def test_nothing_follows_a_body_of_two_lengths(
    service: Serving, path: str, headers: list[str], more: list[str]
) -> None:
    """A proxy that goes by the other length would have taken what follows for a part of it, or the reverse."""
    head = "\r\n".join([f"POST {path} HTTP/1.1", "host: x", "content-type: image/png", *headers, *more, "", ""])
    with socket.create_connection(service.address, timeout=SECONDS) as connection:
        connection.sendall(head.encode() + b"3\r\nabc\r\n0\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        told = json.loads(answer.read())
        assert (answer.status, answer.getheader("connection"), told["error_type"]) == (400, "close", "bad_request")
        assert told["error"].startswith("the request has both Content-Length and Transfer-Encoding; ")
        assert connection.recv(1) == b""


@pytest.mark.parametrize("opening", [b"", b"GET /livez HTTP/1.1\r\nhost"], ids=["nothing", "half a head"])
def test_who_sends_no_request_is_hung_up_on(impatient: Serving, opening: bytes) -> None:
    with socket.create_connection(impatient.address, timeout=30) as connection:
        connection.sendall(opening)
        assert connection.recv(1000) == b""


def test_the_next_request_on_a_connection_has_its_own_time(impatient: Serving) -> None:
    connection = http.client.HTTPConnection(*impatient.address, timeout=30)
    with closing(connection):
        for _ in range(2):
            connection.request("GET", "/livez")
            assert connection.getresponse().read()
        started = time.monotonic()
        connection.sock.sendall(b"GET /livez HTTP")
        assert connection.sock.recv(1000) == b""
        assert time.monotonic() - started < 10  # an idle connection is kept for longer


def test_half_a_request_that_came_with_the_one_before_is_not_waited_for(impatient: Serving) -> None:
    with socket.create_connection(impatient.address, timeout=30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /livez HTTP/1.1\r\nho")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()) == (200, b'{"status":"alive"}')
        assert connection.recv(1000) == b""


def test_a_request_that_came_with_the_one_before_may_be_completed(service: Serving) -> None:
    with socket.create_connection(service.address, timeout=30) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /livez HTTP/1.1\r\nho")
        for rest in (b"st: x\r\n\r\n", b""):
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert answer.read()
            connection.sendall(rest)


def test_a_body_that_does_not_come_is_answered(impatient: Serving) -> None:
    head = f"POST {CLASSIFY} HTTP/1.1\r\nhost: x\r\ncontent-type: image/png\r\ncontent-length: 99\r\n\r\n"
    with socket.create_connection(impatient.address, timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(10_000).startswith(b"HTTP/1.1 408 ")


@pytest.fixture(scope="module")
def impatient(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, deadline=0.3)) as running:
        yield running
