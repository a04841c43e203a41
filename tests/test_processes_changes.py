"""Whichever of several processes is asked to change a task, all of them have changed it when that is answered."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from changing import post, put, task_file
from serving import ADMIN, KEY, SECONDS, Files, Serving, serving, small_settings, write_foldable
from two import Both, seen

from service.logs import JsonFormatter
from service.processes.peers import Peers
from service.routes.forwarding import changes


def test_every_change_is_one_of_both(both: Both, asked: Serving, files: Files, tmp_path: Path) -> None:
    old = seen(both, "digits")
    data = task_file(tmp_path, seed=1)
    loads = asked.metric("task_loads_total", result="loaded")
    answer = put(asked, "digits", data)
    assert (answer.status_code, answer.json()) == (200, seen(both, "digits"))
    assert asked.metric("task_loads_total", result="loaded") == loads + 1  # as often as somebody asked for it
    assert answer.headers["etag"] == f'"{answer.json()["digest"]}"'
    assert (answer.json()["generation"], answer.json()["digest"] != old["digest"]) == (2, True)

    assert post(asked, "/v1/tasks/digits/load").json() == seen(both, "digits")
    assert seen(both, "digits")["generation"] == 3
    assert post(asked, "/v1/tasks/digits/unload").json() == seen(both, "digits")
    assert seen(both, "digits")["state"] == "available"
    assert post(asked, "/v2/repository/models/digits/load").status_code == 200
    assert seen(both, "digits")["generation"] == 4
    assert post(asked, "/v2/repository/models/digits/unload").status_code == 200
    assert seen(both, "digits")["state"] == "available"

    assert asked.client.delete("/v1/tasks/digits", headers=ADMIN).status_code == 204
    assert seen(both, "digits")["error_type"] == "unknown_task"
    assert not (files.tasks / "digits.safetensors").exists()
    answer = put(asked, "digits", data)
    assert (answer.status_code, answer.json()) == (201, seen(both, "digits"))
    assert answer.json()["generation"] == 5


def test_what_is_pinned_is_pinned_in_both(both: Both, asked: Serving, tmp_path: Path) -> None:
    data = write_foldable(tmp_path, "foldable").read_bytes()
    assert put(asked, "foldable", data).status_code == 201
    assert post(asked, "/v1/tasks/foldable/pin").status_code == 200
    told = seen(both, "foldable")
    assert (told["pinned"], told["path"]) == (True, "folded")
    assert asked.client.delete("/v1/tasks/foldable/pin", headers=ADMIN).status_code == 200
    assert not any(service.client.get("/v1/tasks/foldable").json()["pinned"] for service in both)


def test_what_is_refused_changes_nothing(both: Both, asked: Serving, tmp_path: Path) -> None:
    before, data = seen(both, "digits"), task_file(tmp_path, seed=1)

    def refused(content: bytes, **headers: str) -> tuple[int, str]:
        answer = asked.client.put("/v1/tasks/digits", headers=headers, content=content)
        return answer.status_code, answer.json()["error_type"]

    assert refused(data) == (401, "unauthorized")
    assert refused(data, authorization="Bearer wrong") == (403, "forbidden")
    assert refused(b"no task", **ADMIN) == (422, "invalid_task")
    assert refused(b"", **ADMIN) == (400, "bad_request")
    assert refused(data, **ADMIN, **{"if-match": '"other"'}) == (409, "conflict")
    assert post(asked, "/v1/tasks/nothing/load").status_code == 404
    assert seen(both, "digits") == before


def test_what_nobody_asked_for_stays_in_both(both: Both, asked: Serving, files: Files, tmp_path: Path) -> None:
    """The folder is not followed: neither a file that comes nor one that goes is noticed with a change of another."""
    (files.tasks / "letters.safetensors").write_bytes(task_file(tmp_path, "letters"))
    (files.tasks / "plain.safetensors").unlink()
    plain = seen(both, "plain")
    assert post(asked, "/v1/tasks/digits/load").status_code == 200
    assert asked.client.delete("/v1/tasks/digits", headers=ADMIN).status_code == 204
    assert seen(both, "letters")["error_type"] == "unknown_task"
    assert seen(both, "plain") == plain


def test_changes_that_cross_leave_both_alike(both: Both, tmp_path: Path) -> None:
    files = [task_file(tmp_path, seed=seed) for seed in range(1, 7)]

    def change(index: int) -> int:
        return put(both[index % 2], "digits", files[index]).status_code

    with ThreadPoolExecutor(len(files)) as pool:
        assert list(pool.map(change, range(len(files)))) == [200] * len(files)
    assert seen(both, "digits")["generation"] == 1 + len(files)


def test_generations_that_differ_are_the_same_after_a_change(both: Both) -> None:
    for _ in range(3):  # as if a file had changed more often than the other looked
        both[0].on_loop(lambda: both[0].runtime.catalog.load("digits"))
    assert [service.client.get("/v1/tasks/digits").json()["generation"] for service in both] == [4, 1]
    assert post(both[1], "/v1/tasks/digits/load").json() == seen(both, "digits")
    assert seen(both, "digits")["generation"] == 5


def test_of_changes_on_a_condition_that_cross_one_is_made(both: Both, tmp_path: Path) -> None:
    condition = {"if-match": f'"{seen(both, "digits")["digest"]}"'}
    files = [task_file(tmp_path, seed=seed) for seed in range(1, 7)]

    def change(index: int) -> int:
        return put(both[index % 2], "digits", files[index], **condition).status_code

    with ThreadPoolExecutor(len(files)) as pool:
        assert sorted(pool.map(change, range(len(files)))) == [200, *[409] * (len(files) - 1)]
    assert seen(both, "digits")["generation"] == 2


def test_a_change_waits_until_the_one_before_is_followed(both: Both, tmp_path: Path) -> None:
    first, second = both
    files = [task_file(tmp_path, seed=seed) for seed in (1, 2)]
    released = threading.Event()
    second.on_loop(lambda: asyncio.ensure_future(second.runtime.administer(released.wait)))
    try:
        with ThreadPoolExecutor(2) as pool:
            changed = [pool.submit(put, first, "digits", data) for data in files]
            first.until(lambda: first.client.get("/v1/tasks/digits").json()["generation"] == 2)
            for _ in range(300):  # requests in whose time the other change could be made
                assert first.client.get("/v1/tasks/digits").json()["generation"] == 2
            released.set()
            assert [one.result().status_code for one in changed] == [200, 200]
    finally:
        released.set()
    assert seen(both, "digits")["generation"] == 3


def test_the_key_is_looked_at_before_the_body(both: Both) -> None:
    connection = http.client.HTTPConnection(*both[1].address, timeout=SECONDS)
    connection.putrequest("PUT", "/v1/tasks/digits")
    connection.putheader("authorization", "Bearer wrong")
    connection.putheader("content-length", "1000")
    connection.endheaders()
    assert connection.getresponse().status == 403  # and no body came
    connection.close()


def test_the_id_of_a_request_goes_with_it(
    both: Both, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "service.requests")
    monkeypatch.setattr(caplog.handler, "formatter", JsonFormatter())  # all tests have the same handler
    answer = post(both[1], "/v1/tasks/digits/load")
    told = [json.loads(line) for line in caplog.text.splitlines()]
    assert {one["request_id"] for one in told if one.get("method") == "POST"} == {answer.headers["x-request-id"]}
    assert len(answer.headers.get_list("x-request-id")) == len(answer.headers.get_list("date")) == 1


def test_nothing_changes_until_all_are_there(files: Files, tmp_path: Path) -> None:
    settings = small_settings(files, admin_key=KEY, watch=False)
    for number in range(2):
        with serving(settings, Peers(tmp_path, number, 2)) as alone:
            answer = post(alone, "/v1/tasks/digits/load")
            assert (answer.status_code, answer.json()["error_type"]) == (503, "not_ready")
            assert "retry-after" in answer.headers
            assert alone.client.get("/v1/tasks/digits").json()["generation"] == 1


def test_a_change_that_a_process_does_not_follow_is_answered_with_503(files: Files, tmp_path: Path) -> None:
    write_foldable(files.tasks, "foldable")
    settings = small_settings(files, admin_key=KEY, watch=False)
    small = small_settings(files, admin_key=KEY, watch=False, folded_bytes=1)
    with serving(settings, Peers(tmp_path, 0, 2)) as first, serving(small, Peers(tmp_path, 1, 2)):
        answer = post(first, "/v1/tasks/foldable/pin")
        assert answer.status_code == 503
        assert answer.json()["error"].startswith(
            "the change is made, but one of the processes did not follow: the folded task has "
        )


def test_what_needs_the_admin_key_is_a_change_and_nothing_else_is(service: Serving) -> None:
    found, refused = [], []
    for path, operations in service.client.get("/openapi.json").json()["paths"].items():
        for method in operations:
            asked = path.replace("{", "").replace("}", "")
            scope = {"type": "http", "method": method.upper(), "path": asked, "headers": []}
            found += [(method, path)] if changes(scope) else []
            refused += [(method, path)] if service.client.request(method, asked).status_code == 403 else []
    assert found == refused
    assert len(found) == 8
