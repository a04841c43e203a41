"""Tasks change by HTTP: with the key, on conditions, all of it or nothing."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from changing import IMAGE, logits_of, put, task_file
from serving import ADMIN, KEY, Files, Serving, copy_files, serving, small_settings


@pytest.fixture(scope="module")
def refused_files(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return copy_files(small_files, tmp_path_factory.mktemp("refused") / "tasks")


@pytest.fixture(scope="module")
def refusing(refused_files: Files) -> Iterator[Serving]:
    """One like `changeable`, for all changes that are refused."""
    with serving(small_settings(refused_files, admin_key=KEY, watch=False)) as running:
        yield running


def test_a_task_is_put_into_service_replaced_and_deleted(changeable: Serving, files: Files, tmp_path: Path) -> None:
    first, second = task_file(tmp_path, "letters", 1), task_file(tmp_path, "letters", 2)
    assert changeable.classify(IMAGE, "letters").status_code == 404
    for generation, data, status in ((1, first, 201), (2, second, 200)):
        answer = put(changeable, "letters", data)
        assert (answer.status_code, answer.json()["generation"]) == (status, generation), answer.text
        assert answer.headers["etag"] == changeable.client.get("/v1/tasks/letters").headers["etag"]
        classified = changeable.classify(IMAGE, "letters", outputs="logits").json()
        assert classified["digest"] == answer.json()["digest"] == answer.headers["etag"].strip('"')
        assert classified["logits"][0] == pytest.approx(logits_of(data), abs=1e-4)
        assert (files.tasks / "letters.safetensors").read_bytes() == data
    assert changeable.metric("task_bytes", task="letters") == len(second)
    assert changeable.client.delete("/v1/tasks/letters", headers=ADMIN).status_code == 204
    assert changeable.classify(IMAGE, "letters").status_code == 404
    assert not (files.tasks / "letters.safetensors").exists()
    assert 'fpet_task_bytes{task="letters"}' not in changeable.client.get("/metrics").text
    assert put(changeable, "letters", first).json()["generation"] == 3  # not to be taken for the first


def test_a_task_is_taken_out_of_service_and_put_back(changeable: Serving) -> None:
    unloaded = changeable.client.post("/v1/tasks/digits/unload", headers=ADMIN)
    assert (unloaded.status_code, unloaded.json()["state"]) == (200, "available")
    refused = changeable.classify(IMAGE)
    assert (refused.status_code, refused.json()["error_type"]) == (503, "not_ready")
    loaded = changeable.client.post("/v1/tasks/digits/load", headers=ADMIN)
    assert (loaded.json()["state"], loaded.json()["generation"]) == ("loaded", 2)
    assert changeable.classify(IMAGE).status_code == 200


@pytest.mark.parametrize("path", ["/v1/tasks/letters/load", "/v2/repository/models/letters/load"])
def test_a_file_that_was_put_into_the_folder_is_loaded(
    changeable: Serving, files: Files, tmp_path: Path, path: str
) -> None:
    assert changeable.client.post(path, headers=ADMIN).status_code == 404
    (files.tasks / "letters.safetensors").write_bytes(task_file(tmp_path, "letters"))
    for change in ("unload", "pin"):  # of what nobody has asked for
        assert changeable.client.post(f"/v1/tasks/letters/{change}", headers=ADMIN).status_code == 404
    assert changeable.client.post(path, headers=ADMIN).status_code == 200
    assert changeable.classify(IMAGE, "letters").json()["generation"] == 1


def test_a_file_that_was_not_loaded_on_a_condition_is_still_to_be_seen(
    changeable: Serving, files: Files, tmp_path: Path
) -> None:
    (files.tasks / "letters.safetensors").write_bytes(task_file(tmp_path, "letters"))
    conflict = changeable.client.post("/v1/tasks/letters/load", headers={**ADMIN, "if-match": "*"})
    assert conflict.status_code == 409
    assert changeable.client.get("/v1/tasks/letters").status_code == 404


@pytest.mark.parametrize("path", ["/v1/tasks/digits/load", "/v2/repository/models/digits/load"])
def test_a_file_that_cannot_be_loaded_is_refused_and_the_old_one_serves(
    changeable: Serving, files: Files, path: str
) -> None:
    file = files.tasks / "digits.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    refused = changeable.client.post(path, headers=ADMIN)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("digits.safetensors: not a complete safetensors file")
    assert changeable.classify(IMAGE).json()["generation"] == 1
    assert (changeable.metric("tasks", state="failed"), changeable.metric("tasks_answering")) == (1, 2)
    file.write_bytes(whole)
    assert changeable.client.post(path, headers=ADMIN).status_code == 200
    assert changeable.classify(IMAGE).json()["generation"] == 2


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", ""), ("DELETE", ""), ("POST", "/load"), ("POST", "/unload")], ids=str
)
def test_without_the_key_nothing_changes(refusing: Serving, tmp_path: Path, method: str, path: str) -> None:
    content = task_file(tmp_path) if method == "PUT" else None
    for value, expected in (
        (None, (401, "unauthorized")),
        (KEY, (401, "unauthorized")),
        (f"Basic {KEY}", (401, "unauthorized")),
        (f"Bearer {KEY}x", (403, "forbidden")),
        ("Bearer clé", (403, "forbidden")),
    ):
        headers = {} if value is None else {"authorization": value.encode()}
        answer = refusing.client.request(method, f"/v1/tasks/digits{path}", headers=headers, content=content)
        assert (answer.status_code, answer.json()["error_type"]) == expected, value
        assert refusing.classify(IMAGE).json()["generation"] == 1, value


def test_a_service_without_a_key_cannot_be_changed(files: Files, tmp_path: Path) -> None:
    with serving(small_settings(files, watch=False)) as running:
        answer = put(running, "digits", task_file(tmp_path))
        assert (answer.status_code, answer.json()["error_type"]) == (403, "forbidden")
        assert running.classify(IMAGE).json()["generation"] == 1


def test_a_change_may_depend_on_what_serves(changeable: Serving, tmp_path: Path) -> None:
    etag = changeable.client.get("/v1/tasks/digits").headers["etag"]
    new = task_file(tmp_path)
    assert put(changeable, "letters", task_file(tmp_path, "letters"), **{"if-match": "*"}).status_code == 409
    assert put(changeable, "digits", new, **{"if-none-match": "*"}).status_code == 409
    assert put(changeable, "digits", new, **{"if-match": '"other", ' + etag}).status_code == 200
    conflict = put(changeable, "digits", new, **{"if-match": etag})
    assert (conflict.status_code, conflict.json()["error_type"]) == (409, "conflict")
    assert "generation 2" in conflict.json()["error"]
    deleted = changeable.client.delete("/v1/tasks/digits", headers={**ADMIN, "if-match": etag})
    assert deleted.status_code == 409
    for path in ("/v1/tasks/digits", "/v2/repository/models/digits"):
        for action in ("load", "unload"):
            answer = changeable.client.post(f"{path}/{action}", headers={**ADMIN, "if-match": etag})
            assert (answer.status_code, answer.json()["error_type"]) == (409, "conflict")
            assert changeable.classify(IMAGE).json()["generation"] == 2
    assert put(changeable, "letters", task_file(tmp_path, "letters"), **{"if-none-match": "*"}).status_code == 201
    assert put(changeable, "digits", new, **{"if-match": "*"}).json()["generation"] == 2  # the same bytes
    etag = changeable.client.get("/v1/tasks/digits").headers["etag"]
    for action, state in (("load", "loaded"), ("unload", "available")):
        changed = changeable.client.post(f"/v1/tasks/digits/{action}", headers={**ADMIN, "if-match": etag})
        assert (changed.status_code, changed.json()["state"]) == (200, state)
    assert changeable.client.post("/v1/tasks/digits/load", headers={**ADMIN, "if-match": "*"}).status_code == 409
    assert changeable.client.post("/v1/tasks/nothing/load", headers={**ADMIN, "if-match": "*"}).status_code == 404


def test_what_cannot_serve_is_refused_and_the_old_one_goes_on(
    changeable: Serving, files: Files, tmp_path: Path
) -> None:
    before = (files.tasks / "digits.safetensors").read_bytes()
    good = task_file(tmp_path)
    bad = {
        "not a complete safetensors file": good[: len(good) // 2],
        "the file holds the task 'letters', not 'digits'": task_file(tmp_path, "letters"),
        "the model cannot run": good.replace(b"[16, 16]", b"[32, 32]"),
    }
    for message, data in bad.items():
        answer = put(changeable, "digits", data)
        assert (answer.status_code, answer.json()["error_type"]) == (422, "invalid_task"), answer.text
        assert message in answer.json()["error"]
        assert str(files.tasks) not in answer.text
    assert put(changeable, "digits", b"").status_code == 400
    too_large = put(changeable, "digits", b"x" * 100_001)
    assert (too_large.status_code, "100000" in too_large.json()["error"]) == (413, True)
    assert changeable.classify(IMAGE).json()["generation"] == 1
    assert (files.tasks / "digits.safetensors").read_bytes() == before
    assert sorted(path.name for path in files.tasks.iterdir()) == ["digits.safetensors", "plain.safetensors"]


@pytest.mark.parametrize("name", ["..%2Fdigits", "%2e%2e", "DIGITS", "chiffres-é", "x" * 300, "a%2Fb", "a%00b"])
def test_no_name_leads_out_of_the_folder(refusing: Serving, refused_files: Files, tmp_path: Path, name: str) -> None:
    data = task_file(tmp_path)
    for conditions in ({}, {"if-none-match": "*"}):
        for body in (data, b""):  # which is not looked at
            refused = put(refusing, name, body, **conditions)
            assert refused.status_code in (400, 404, 405) or "is not 1 to 64 of a-z, 0-9" in refused.json()["error"]
    for method, path in (("DELETE", ""), ("POST", "/load"), ("POST", "/unload")):
        answer = refusing.client.request(method, f"/v1/tasks/{name}{path}", headers=ADMIN)
        assert answer.status_code in (400, 404, 405)
    names = ["digits.safetensors", "plain.safetensors"]
    assert sorted(path.name for path in refused_files.tasks.iterdir()) == names
    assert [path.name for path in refused_files.tasks.parent.iterdir()] == ["tasks"]


def test_no_task_takes_the_place_of_the_statistics_of_all(changeable: Serving, files: Files, tmp_path: Path) -> None:
    data, reason = task_file(tmp_path, "stats"), "stats.safetensors: no task can be called 'stats'"
    refused = put(changeable, "stats", data)
    assert (refused.status_code, refused.json()["error_type"]) == (422, "invalid_task")
    assert refused.json()["error"].startswith(reason)
    assert not (files.tasks / "stats.safetensors").exists()
    (files.tasks / "stats.safetensors").write_bytes(data)
    with serving(small_settings(files)) as started:
        told = started.client.get("/v1/tasks/stats").json()
        assert (told["state"], told["reason"].startswith(reason)) == ("failed", True)
        assert started.classify(IMAGE).status_code == 200
        models = started.client.get("/v2/models/stats").json()["model_stats"]
        assert [one["name"] for one in models] == ["digits", "plain"]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond a few bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_changes_nothing(
    changeable: Serving, files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, before = task_file(tmp_path), (files.tasks / "digits.safetensors").read_bytes()
    with full_disk():
        answer = put(changeable, "digits", data)
    assert (answer.status_code, answer.json()["error_type"]) == (507, "storage"), answer.text
    assert "the task digits is not stored" in caplog.text
    assert changeable.classify(IMAGE).json()["generation"] == 1
    assert (files.tasks / "digits.safetensors").read_bytes() == before
    assert len(list(files.tasks.iterdir())) == 2
    assert put(changeable, "digits", data).status_code == 200
