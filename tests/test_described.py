"""The description of the interface says which headers, types and sentences real answers have."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import pictures
import pytest
from changing import task_file
from full_queue import full
from inference_requests import GOOD
from serving import ADMIN, KEY, Files, Serving, copy_files, serving, small_settings

from service.app import create_app
from service.http.limits import MAX_HEADERS

STANDARD = {"connection", "content-length", "content-type", "date"}
API_KEY = "a key of clients"
CLIENT = {"authorization": f"Bearer {API_KEY}"}
IMAGE: dict[str, Any] = {"content": pictures.png(), "headers": {**CLIENT, "content-type": "image/png"}}
ZIPPED = {"content": gzip.compress(b"x"), "headers": {**IMAGE["headers"], "content-encoding": "gzip"}}
MANY = {"headers": {f"x-{i}": "" for i in range(MAX_HEADERS)}}
TASK, CLASSIFY, EXPLAIN = "/v1/tasks/{task}", "/v1/tasks/{task}/classify", "/v1/tasks/{task}/explain"
INFER, REPOSITORY = "/v2/models/{model}/infer", "/v2/repository/models/{model}"
BINARY = {"inputs": [GOOD], "parameters": {"binary_data_output": True}}

# Method, path as described, name of the task, status, and what else httpx sends. The order matters.
ASKED: list[tuple[str, str, str, int, dict[str, Any]]] = [
    ("get", "/livez", "", 200, {}),
    ("get", "/livez", "", 431, MANY),
    ("get", "/readyz", "", 200, {}),
    ("get", "/metrics", "", 200, {}),
    ("get", "/metrics", "", 200, {"headers": {"accept": "application/openmetrics-text; version=1.0.0"}}),
    ("get", "/v2/health/ready", "", 200, {}),
    ("get", "/v1/tasks", "", 200, {"headers": CLIENT}),
    ("get", "/v1/tasks", "", 403, {"headers": {"authorization": "Bearer wrong"}}),
    ("get", TASK, "digits", 200, {"headers": CLIENT}),
    ("get", TASK, "nothing", 404, {"headers": CLIENT}),
    ("get", "/v1/savings", "", 200, {"headers": CLIENT}),
    ("post", CLASSIFY, "digits", 200, IMAGE),
    ("post", CLASSIFY, "digits", 415, ZIPPED),
    ("post", CLASSIFY, "digits", 422, {**IMAGE, "params": {"top_k": 0}}),
    ("post", CLASSIFY, "digits", 429, IMAGE),
    ("post", CLASSIFY, "digits", 431, MANY),
    ("post", "/v1/classify", "", 200, {**IMAGE, "params": {"tasks": "digits"}}),
    ("post", EXPLAIN, "digits", 200, IMAGE),
    ("post", EXPLAIN, "digits", 200, {**IMAGE, "params": {"format": "json"}}),
    ("post", INFER, "digits", 200, {"json": {"inputs": [GOOD]}, "headers": CLIENT}),
    ("post", INFER, "digits", 200, {"json": BINARY, "headers": CLIENT}),
    ("post", INFER, "digits", 429, {"json": BINARY, "headers": CLIENT}),
    ("get", "/v2/models/{model}", "digits", 200, {"headers": CLIENT}),
    ("post", "/v2/repository/index", "", 200, {"headers": CLIENT}),
    ("post", REPOSITORY + "/load", "digits", 200, {"headers": ADMIN}),
    ("put", TASK, "digits", 409, {"headers": {**ADMIN, "if-match": "other"}, "content": b"x"}),
    ("put", TASK, "letters", 201, {"headers": ADMIN}),
    ("put", TASK, "letters", 200, {"headers": ADMIN}),
    ("delete", TASK, "letters", 204, {"headers": ADMIN}),
]


def named(path: str, task: str) -> str:
    return path.replace("{task}", task).replace("{model}", task).replace("{version}", "1")


def declared(document: dict[str, Any], method: str, path: str, status: int) -> dict[str, Any]:
    answer: dict[str, Any] = document["paths"][path][method]["responses"][str(status)]
    return answer


def own(answer: httpx.Response) -> set[str]:
    return set(answer.headers) - STANDARD


@pytest.fixture(scope="module")
def locked(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service with both kinds of keys, whose tasks may change."""
    files = copy_files(small_files, tmp_path_factory.mktemp("described") / "tasks")
    with serving(small_settings(files, admin_key=KEY, api_keys=API_KEY, watch=False)) as running:
        yield running


def test_answers_have_the_headers_and_types_that_are_declared_and_no_others(
    locked: Serving, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = locked.client.get("/openapi.json").json()
    letters = {"content": task_file(tmp_path_factory.mktemp("letters"), "letters")}
    carried: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for method, path, task, status, more in ASKED:
        file = letters if (method, task) == ("put", "letters") else {}
        with full(locked) if status == 429 else nullcontext():
            answer = locked.client.request(method, named(path, task), **more, **file)
        assert answer.status_code == status, (method, path, answer.text)
        carried[method, path, status] |= own(answer)
        content_type = answer.headers.get("content-type", "").partition(";")[0]
        types = declared(document, method, path, status).get("content", {})
        assert (content_type in types) if answer.content else not types, (method, path, status)
    expected = {asked: set(declared(document, *asked)["headers"]) for asked in carried}
    assert carried == expected


@pytest.mark.anyio
async def test_a_service_that_starts_says_when_to_come_back_as_it_is_declared(small_files: Files) -> None:
    app = create_app(small_settings(small_files))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        for method, path in (("get", "/readyz"), ("post", CLASSIFY), ("get", "/v2/models/{model}")):
            answer = await client.request(method, named(path, "digits"))
            assert answer.status_code == 503
            assert own(answer) == set(declared(app.openapi(), method, path, 503)["headers"])
        assert "\nfpet_ready 0.0\n" in (await client.get("/metrics")).text


def test_whoever_has_no_key_is_told_what_the_description_says(locked: Serving, small_files: Files) -> None:
    document = locked.client.get("/openapi.json").json()
    with serving(small_settings(small_files, admin_key=KEY, watch=False)) as open_to_clients:
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if "401" not in operation["responses"]:
                    continue
                answers = [one.client.request(method, named(path, "x")) for one in (locked, open_to_clients)]
                refusals = [answer for answer in answers if answer.status_code == 401]
                example = operation["responses"]["401"]["content"]["application/json"]["example"]
                assert example in [answer.json() for answer in refusals], (method, path)
                for answer in refusals:
                    assert own(answer) == set(operation["responses"]["401"]["headers"])


def test_what_a_route_reads_and_cannot_answer_is_described(locked: Serving) -> None:
    paths = locked.client.get("/openapi.json").json()["paths"]
    for path in (INFER, "/v2/models/{model}/versions/{version}/infer"):
        headers = [one["name"] for one in paths[path]["post"]["parameters"] if one["in"] == "header"]
        assert sorted(headers) == ["inference-header-content-length", "x-deadline-ms"]
    # 503 if one of several processes is silent.
    assert set(paths["/metrics"]["get"]["responses"]) == {"200", "400", "431", "503"}
    for operations in paths.values():
        for operation in operations.values():
            assert {"400", "431"} <= set(operation["responses"])


def test_whatever_the_description_refers_to_is_there(locked: Serving) -> None:
    document = locked.client.get("/openapi.json").json()
    found = set(references(document))
    assert found
    for reference in found:
        part = document
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]
    schema = document["paths"][INFER]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"name", "datatype", "shape"} <= set(schema["properties"]["inputs"]["items"]["properties"])


def references(part: object) -> Iterator[str]:
    """Every `$ref` in a part of the description."""
    if isinstance(part, dict) and "$ref" in part:
        yield part["$ref"]
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from references(one)
