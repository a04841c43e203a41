"""Folded tasks over real HTTP: pinned, hot, and replaced while they are asked."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pictures
import pytest
from serving import Files, Serving, serving, small_settings, write_foldable

from service.model.loaded import LoadedTask

KEY = "correct horse battery"
ADMIN = {"authorization": f"Bearer {KEY}"}
IMAGES = [pictures.png(seed) for seed in range(8)]


@pytest.fixture
def files(small_files: Files, tmp_path: Path) -> Files:
    """Two tasks of a family that folds, and `digits`, which does not."""
    folder = tmp_path / "tasks"
    shutil.copytree(small_files.tasks, folder)
    for seed, name in enumerate(("one", "two")):
        write_foldable(folder, name, seed)
    return Files(small_files.backbone, folder)


@pytest.fixture
def service(files: Files) -> Iterator[Serving]:
    """Nothing becomes hot in it."""
    with serving(small_settings(files, admin_key=KEY, watch=False, folded_share=1)) as running:
        yield running


def pin(service: Serving, name: str, method: str = "POST", **headers: str) -> httpx.Response:
    return service.client.request(method, f"/v1/tasks/{name}/pin", headers={**ADMIN, **headers})


def logits(service: Serving, name: str, **query: object) -> list[list[float]]:
    return [service.classify(image, name, outputs="logits", **query).json()["logits"][0] for image in IMAGES]


def test_a_task_is_pinned_over_http(service: Serving) -> None:
    before = [logits(service, "one", tokens=tokens) for tokens in ("reduced", "full")]
    assert pin(service, "one", **{"if-match": '"another"'}).status_code == 409
    assert service.client.get("/v1/tasks/one").json()["path"] == "mixed"
    answer = pin(service, "one")
    assert (answer.status_code, answer.json()["path"], answer.json()["pinned"]) == (200, "folded", True), answer.text
    size = answer.json()["folded_bytes"]
    assert service.metric("resident_bytes", kind="folded") == size > 0
    folded = service.metric("batches_total", path="folded")
    for tokens, expected in zip(("reduced", "full"), before, strict=True):
        for one, other in zip(logits(service, "one", tokens=tokens), expected, strict=True):
            assert one == pytest.approx(other, abs=1e-4)
    assert service.metric("batches_total", path="folded") == folded + 2 * len(IMAGES)
    assert pin(service, "one", "DELETE", **{"if-match": '"another"'}).status_code == 409
    unpinned = pin(service, "one", "DELETE", **{"if-match": f'"{answer.json()["digest"]}"'})
    assert (unpinned.status_code, unpinned.json()["pinned"]) == (200, False)
    assert service.metric("resident_bytes", kind="backbone") > service.metric("resident_bytes", kind="tasks") > 0


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_pin_of_what_is_replaced_meanwhile_is_none(
    service: Serving, files: Files, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = {"POST": "pin", "DELETE": "unpin"}[method]
    done = getattr(service.runtime.folding, name)

    def replaced(task: LoadedTask) -> None:
        done(task)
        write_foldable(files.tasks, "one", seed=7)
        assert service.client.post("/v1/tasks/one/load", headers=ADMIN).status_code == 200

    monkeypatch.setattr(service.runtime.folding, name, replaced)
    answer = pin(service, "one", method)
    assert (answer.status_code, answer.json()["error"]) == (409, "the task 'one' is another by now")
    assert not service.client.get("/v1/tasks/one").json()["pinned"]


@pytest.mark.parametrize(
    ("name", "status", "error_type", "message"),
    [
        ("nothing", 404, "unknown_task", "there is no task 'nothing'"),
        ("digits", 422, "invalid_request", "adaptformer does not fold"),
    ],
)
def test_what_cannot_be_pinned_is_refused(
    service: Serving, name: str, status: int, error_type: str, message: str
) -> None:
    answer = pin(service, name)
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type)
    assert message in answer.json()["error"]
    for method in ("POST", "DELETE"):
        assert pin(service, "one", method, authorization="Bearer wrong").status_code == 403


def test_who_unpins_what_is_not_there_waits_for_nothing(service: Serving) -> None:
    release = threading.Event()
    service.runtime.pools.folding.submit(release.wait)  # as if something were being folded
    try:
        assert pin(service, "nothing", "DELETE").status_code == 404
        assert pin(service, "one", "DELETE", **{"if-match": '"another"'}).status_code == 409
    finally:
        release.set()


def test_what_took_the_place_of_a_file_is_not_waited_for(service: Serving, files: Files) -> None:
    path = files.tasks / "one.safetensors"
    path.unlink()
    os.mkfifo(path)
    answer = pin(service, "one")
    assert (answer.status_code, answer.json()["error_type"]) == (409, "conflict")
    assert service.classify(IMAGES[0], "one").status_code == 200


def test_savings_tell_the_timings_of_the_path_that_serves(files: Files) -> None:
    def points(service: Serving) -> list[Any]:
        (found,) = [one for one in service.client.get("/v1/savings").json()["calibration"] if one["task"] == "one"]
        return found["points"]

    settings = small_settings(files, admin_key=KEY, watch=False, folded_share=1, calibration_repeats=1)
    with serving(settings) as service:
        unfolded = points(service)
        pin(service, "one")
        service.until(lambda: points(service) != unfolded)
        service.client.post("/v1/tasks/one/load", headers=ADMIN)  # which unfolds it
        assert points(service) == unfolded


def test_the_running_service_takes_the_path_that_it_measured_to_be_faster(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="service.folding")
    with serving(small_settings(files, folded_share=0.01)) as service:
        service.until(lambda: bool(logits(service, "two")) and "the task two: batches" in caplog.text)
        if "folded from now on" in caplog.text and "unfolded as before" not in caplog.text:
            service.until(lambda: service.client.get("/v1/tasks/two").json()["path"] == "folded")
            logits(service, "two")
            assert service.metric("batches_total", path="folded") >= len(IMAGES)
        else:
            assert service.client.get("/v1/tasks/two").json()["path"] == "mixed"
        assert service.client.get("/v1/tasks/one").json()["path"] == "mixed"


def test_nobody_gets_old_weights_under_a_new_digest(service: Serving, tmp_path: Path) -> None:
    """A task is replaced and pinned all the time; every answer is of the weights that its digest names."""
    versions = [write_foldable(tmp_path, "one", seed).read_bytes() for seed in (1, 2, 3)]
    expected = {}
    for data in versions:
        answer = service.client.put("/v1/tasks/one", content=data, headers=ADMIN)
        expected[answer.json()["digest"]] = logits(service, "one")
    changed = threading.Event()

    def change() -> None:
        for data in versions * 4:
            assert pin(service, "one").status_code == 200
            replaced = service.client.put("/v1/tasks/one", content=data, headers=ADMIN)
            assert (replaced.json()["path"], replaced.json()["pinned"]) == ("mixed", False)

    def ask() -> int:
        for number in itertools.count():
            if changed.is_set():
                return number
            i = number % len(IMAGES)
            answer = service.classify(IMAGES[i], "one", outputs="logits")
            assert answer.status_code == 200, answer.text
            assert answer.json()["logits"][0] == pytest.approx(expected[answer.json()["digest"]][i], abs=1e-4)
        raise AssertionError("counting ends nowhere")

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask) for _ in range(6)]
        try:
            change()
        finally:
            changed.set()
    assert min(one.result() for one in asking) > 0
    assert service.metric("batches_total", path="folded") > 0
    assert service.metric("resident_bytes", kind="folded") == 0
    service.client.post("/v1/tasks/one/load", headers=ADMIN)
    assert pin(service, "one").json()["pinned"]
    service.client.post("/v1/tasks/one/unload", headers=ADMIN)
    assert service.metric("resident_bytes", kind="folded") == 0
