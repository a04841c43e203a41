"""Tasks change while the service runs: by HTTP or in the folder, and nobody is answered wrongly or not at all."""

from __future__ import annotations

import dataclasses
import resource
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pictures
import pytest
import torch
from serving import Files, Serving, serving, small_settings, write_task
from small import small_backbone, small_header

from fpet.header import Method
from fpet.preprocess import Preprocessing
from fpet.task import Task
from service.decode import decode_image

KEY = "correct horse battery"
ADMIN = {"authorization": f"Bearer {KEY}"}
IMAGE = pictures.png()


@pytest.fixture
def files(small_files: Files, tmp_path: Path) -> Files:
    """The small tasks, in a folder of their own."""
    shutil.copytree(small_files.tasks, tmp_path / "tasks")
    return Files(small_files.backbone, tmp_path / "tasks")


@pytest.fixture
def service(files: Files) -> Iterator[Serving]:
    with serving(small_settings(files, admin_key=KEY, watch=False, max_task_bytes=100_000)) as running:
        yield running


def task_file(folder: Path, name: str = "digits", seed: int = 1, **changes: object) -> bytes:
    """The bytes of a task file of that name."""
    backbone, path = small_backbone(), folder / f"{name}-{seed}.bytes"
    write_task(path, dataclasses.replace(small_header(backbone), name=name, **changes), backbone, seed)
    return path.read_bytes()


def logits_of(data: bytes) -> list[float]:
    task = Task.parse(data, Path("expected"))
    preprocessing = task.header.preprocessing
    image = preprocessing.resize(decode_image(IMAGE, ("png",), 10_000))
    with torch.inference_mode():
        logits = task.build(small_backbone())(preprocessing.normalize(image[None], torch.float32))[0]
    values: list[float] = logits.tolist()
    return values


def put(service: Serving, name: str, data: bytes, **headers: str) -> httpx.Response:
    return service.client.put(f"/v1/tasks/{name}", content=data, headers={**ADMIN, **headers})


def test_a_task_is_put_into_service_replaced_and_deleted(service: Serving, files: Files, tmp_path: Path) -> None:
    first, second = task_file(tmp_path, "letters", 1), task_file(tmp_path, "letters", 2)
    assert service.classify(IMAGE, "letters").status_code == 404
    for generation, data, status in ((1, first, 201), (2, second, 200)):
        answer = put(service, "letters", data)
        assert (answer.status_code, answer.json()["generation"]) == (status, generation), answer.text
        assert answer.headers["etag"] == service.client.get("/v1/tasks/letters").headers["etag"]
        classified = service.classify(IMAGE, "letters", outputs="logits").json()
        assert classified["digest"] == answer.json()["digest"] == answer.headers["etag"].strip('"')
        assert classified["logits"][0] == pytest.approx(logits_of(data), abs=1e-4)
        assert (files.tasks / "letters.safetensors").read_bytes() == data
    assert service.metric("task_bytes", task="letters") == len(second)
    assert service.client.delete("/v1/tasks/letters", headers=ADMIN).status_code == 204
    assert service.classify(IMAGE, "letters").status_code == 404
    assert not (files.tasks / "letters.safetensors").exists()
    assert 'fpet_task_bytes{task="letters"}' not in service.client.get("/metrics").text
    assert put(service, "letters", first).json()["generation"] == 3  # not to be taken for the first


def test_a_task_is_taken_out_of_service_and_put_back(service: Serving) -> None:
    unloaded = service.client.post("/v1/tasks/digits/unload", headers=ADMIN)
    assert (unloaded.status_code, unloaded.json()["state"]) == (200, "available")
    refused = service.classify(IMAGE)
    assert (refused.status_code, refused.json()["error_type"]) == (503, "not_ready")
    loaded = service.client.post("/v1/tasks/digits/load", headers=ADMIN)
    assert (loaded.json()["state"], loaded.json()["generation"]) == ("loaded", 2)
    assert service.classify(IMAGE).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status", "error_type"),
    [
        ({}, 401, "unauthorized"),
        ({"authorization": KEY}, 401, "unauthorized"),
        ({"authorization": f"Basic {KEY}"}, 401, "unauthorized"),
        ({"authorization": f"Bearer {KEY}x"}, 403, "forbidden"),
        ({"authorization": "Bearer clé"}, 403, "forbidden"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", ""), ("DELETE", ""), ("POST", "/load"), ("POST", "/unload")], ids=str
)
def test_without_the_key_nothing_changes(  # noqa: PLR0917
    service: Serving, tmp_path: Path, headers: dict[str, str], status: int, error_type: str, method: str, path: str
) -> None:
    raw = {name: value.encode() for name, value in headers.items()}
    content = task_file(tmp_path) if method == "PUT" else None
    answer = service.client.request(method, f"/v1/tasks/digits{path}", headers=raw, content=content)
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type)
    assert service.classify(IMAGE).json()["generation"] == 1


def test_a_service_without_a_key_cannot_be_changed(files: Files, tmp_path: Path) -> None:
    with serving(small_settings(files, watch=False)) as running:
        answer = put(running, "digits", task_file(tmp_path))
        assert (answer.status_code, answer.json()["error_type"]) == (403, "forbidden")
        assert running.classify(IMAGE).json()["generation"] == 1


def test_a_change_may_depend_on_what_serves(service: Serving, tmp_path: Path) -> None:
    etag = service.client.get("/v1/tasks/digits").headers["etag"]
    new = task_file(tmp_path)
    assert put(service, "letters", task_file(tmp_path, "letters"), **{"if-match": "*"}).status_code == 409
    assert put(service, "digits", new, **{"if-none-match": "*"}).status_code == 409
    assert put(service, "digits", new, **{"if-match": '"other", ' + etag}).status_code == 200
    conflict = put(service, "digits", new, **{"if-match": etag})
    assert (conflict.status_code, conflict.json()["error_type"]) == (409, "conflict")
    assert "generation 2" in conflict.json()["error"]
    deleted = service.client.delete("/v1/tasks/digits", headers={**ADMIN, "if-match": etag})
    assert deleted.status_code == 409
    assert put(service, "letters", task_file(tmp_path, "letters"), **{"if-none-match": "*"}).status_code == 201
    assert put(service, "digits", new, **{"if-match": "*"}).json()["generation"] == 3


def test_what_cannot_serve_is_refused_and_the_old_one_goes_on(service: Serving, files: Files, tmp_path: Path) -> None:
    before = (files.tasks / "digits.safetensors").read_bytes()
    good = task_file(tmp_path)
    bad = {
        "not a complete safetensors file": good[: len(good) // 2],
        "the file holds the task 'letters', not 'digits'": task_file(tmp_path, "letters"),
        "the model cannot run": task_file(tmp_path, preprocessing=Preprocessing((32, 32))),
    }
    for message, data in bad.items():
        answer = put(service, "digits", data)
        assert (answer.status_code, answer.json()["error_type"]) == (422, "invalid_task"), answer.text
        assert message in answer.json()["error"]
        assert str(files.tasks) not in answer.text
    assert put(service, "digits", b"").status_code == 400
    too_large = put(service, "digits", b"x" * 100_001)
    assert (too_large.status_code, "100000" in too_large.json()["error"]) == (413, True)
    assert service.classify(IMAGE).json()["generation"] == 1
    assert (files.tasks / "digits.safetensors").read_bytes() == before
    assert sorted(path.name for path in files.tasks.iterdir()) == ["digits.safetensors", "plain.safetensors"]


@pytest.mark.parametrize("name", ["..%2Fdigits", "%2e%2e", "DIGITS", "chiffres-é", "x" * 300, "a%2Fb"])
def test_no_name_leads_out_of_the_folder(service: Serving, files: Files, tmp_path: Path, name: str) -> None:
    data = task_file(tmp_path)
    assert put(service, name, data).status_code in (404, 405, 422)
    for method, path in (("DELETE", ""), ("POST", "/load"), ("POST", "/unload")):
        answer = service.client.request(method, f"/v1/tasks/{name}{path}", headers=ADMIN)
        assert answer.status_code in (404, 405)
    names = ["digits.safetensors", "plain.safetensors"]
    assert sorted(path.name for path in files.tasks.iterdir()) == names
    assert sorted(path.name for path in files.tasks.parent.iterdir()) == ["digits-1.bytes", "tasks"]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process can grow beyond a few bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_changes_nothing(service: Serving, files: Files, tmp_path: Path) -> None:
    data, before = task_file(tmp_path), (files.tasks / "digits.safetensors").read_bytes()
    with full_disk():
        answer = put(service, "digits", data)
    assert (answer.status_code, answer.json()["error_type"]) == (507, "storage"), answer.text
    assert service.classify(IMAGE).json()["generation"] == 1
    assert (files.tasks / "digits.safetensors").read_bytes() == before
    assert len(list(files.tasks.iterdir())) == 2
    assert put(service, "digits", data).status_code == 200


def test_nobody_gets_a_mixture_while_tasks_change(service: Serving, tmp_path: Path) -> None:
    """Two tasks are replaced all the time, a third comes and goes; every answer is of the weights that it names."""
    names = ("digits", "letters", "guest")
    versions = {name: [task_file(tmp_path, name, seed) for seed in (1, 2, 3)] for name in names}
    every = [(name, data) for name, files in versions.items() for data in files]
    expected = {Task.parse(data, Path(name)).digest: (name, logits_of(data)) for name, data in every}
    put(service, "letters", versions["letters"][0])
    put(service, "digits", versions["digits"][0])
    stop = threading.Event()

    def change() -> int:
        changes = 0
        while not stop.is_set():
            for name in names:
                answer = put(service, name, versions[name][changes % 3])
                assert answer.status_code in (200, 201), answer.text
            service.client.post("/v1/tasks/guest/unload", headers=ADMIN)
            service.client.delete("/v1/tasks/guest", headers=ADMIN)
            changes += 1
        return changes

    def ask(i: int) -> httpx.Response:
        return service.classify(IMAGE, names[i % 3], outputs="logits")

    with ThreadPoolExecutor(9) as pool:
        changing = pool.submit(change)
        answers = list(pool.map(ask, range(600)))
        stop.set()
    assert changing.result() > 3
    for i, answer in enumerate(answers):
        name = names[i % 3]
        if name == "guest" and answer.status_code in (404, 503):
            continue
        assert answer.status_code == 200, answer.text
        assert answer.json()["task"] == name
        assert answer.json()["logits"][0] == pytest.approx(expected[answer.json()["digest"]][1], abs=1e-4)
        assert expected[answer.json()["digest"]][0] == name
    assert len({answer.json().get("digest") for answer in answers} - {None}) > 6


def test_the_folder_is_followed(files: Files, tmp_path: Path) -> None:
    def digest(name: str) -> str | None:
        answer = running.client.get(f"/v1/tasks/{name}").json()
        return answer.get("digest") if answer.get("state") == "loaded" else None

    with serving(small_settings(files, preload="plain")) as running:
        assert running.classify(IMAGE, "plain").status_code == 200
        assert running.classify(IMAGE, "digits").status_code == 503  # not among those to be loaded
        data = task_file(tmp_path, "letters")
        (files.tasks / "letters.safetensors").write_bytes(data)
        running.until(lambda: digest("letters") is not None)
        assert running.classify(IMAGE, "letters").status_code == 200
        (files.tasks / "letters.safetensors").write_bytes(data[:1000])
        running.until(lambda: running.client.get("/v1/tasks/letters").json()["state"] == "failed")
        assert running.classify(IMAGE, "letters").json()["generation"] == 1
        shutil.move(tmp_path / "letters-1.bytes", files.tasks / "letters.safetensors")
        running.until(lambda: digest("letters") is not None)
        assert running.classify(IMAGE, "letters").json()["generation"] == 2
        (files.tasks / "letters.safetensors").unlink()
        running.until(lambda: running.classify(IMAGE, "letters").status_code == 404)
        assert running.client.get("/v1/tasks/digits").json()["state"] == "available"


def test_a_family_that_was_never_timed_is_timed_once_it_serves(service: Serving, tmp_path: Path) -> None:
    data = task_file(tmp_path, "letters", adapter=Method("lora", {"dim": 3}))
    assert put(service, "letters", data).status_code == 201

    def points() -> list[object]:
        calibration = service.client.get("/v1/savings").json()["calibration"]
        return next(one["points"] for one in calibration if one["task"] == "letters")

    service.until(lambda: len(points()) == 3)  # batches of 1, 2 and 4
