"""Tasks change by HTTP or in the folder while the service runs, and nobody is answered wrongly or not at all."""

from __future__ import annotations

import itertools
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from changing import IMAGE, logits_of, put, task_file
from serving import ADMIN, KEY, Files, Serving, serving, small_settings

from fpet.header import Method
from fpet.task import Task


def replace_in_turn(changeable: Serving, versions: dict[str, list[bytes]], stop: threading.Event) -> None:
    """Puts one version of each task after the other and takes the guest away, until it is to stop."""
    for round in itertools.count(1):
        for name, files in versions.items():
            answer = put(changeable, name, files[round % len(files)])
            assert answer.status_code in (200, 201), answer.text
        changeable.client.post("/v1/tasks/guest/unload", headers=ADMIN)
        changeable.client.delete("/v1/tasks/guest", headers=ADMIN)
        if stop.is_set():
            return


def digests_in(answers: list[httpx.Response]) -> set[str]:
    return {answer.json()["digest"] for answer in answers if answer.status_code == 200}


def test_nobody_gets_a_mixture_while_tasks_change(changeable: Serving, tmp_path: Path) -> None:
    """Two tasks are replaced all the time, a third comes and goes; every answer is of the weights that it names."""
    names = ("digits", "letters", "guest")
    versions = {name: [task_file(tmp_path, name, seed) for seed in (1, 2, 3)] for name in names}
    every = [(name, data) for name, files in versions.items() for data in files]
    expected = {Task.parse(data, Path(name)).digest: (name, logits_of(data)) for name, data in every}
    put(changeable, "letters", versions["letters"][0])
    put(changeable, "digits", versions["digits"][0])
    stop = threading.Event()

    def ask(i: int) -> httpx.Response:
        return changeable.classify(IMAGE, names[i % 3], outputs="logits")

    answers: list[httpx.Response] = []
    with ThreadPoolExecutor(9) as pool:
        changing = pool.submit(replace_in_turn, changeable, versions, stop)
        try:
            # A disk may take as long for a change as others for a hundred answers.
            while len(answers) < 600 or not (len(digests_in(answers)) > 6 or changing.done()):
                answers += pool.map(ask, range(len(answers), len(answers) + 60))
        finally:
            stop.set()
        changing.result()
    for i, answer in enumerate(answers):
        name = names[i % 3]
        if name == "guest" and answer.status_code in (404, 503):
            continue
        assert answer.status_code == 200, answer.text
        assert answer.json()["task"] == name
        assert answer.json()["logits"][0] == pytest.approx(expected[answer.json()["digest"]][1], abs=1e-4)
        assert expected[answer.json()["digest"]][0] == name
    assert len(digests_in(answers)) > 6


def test_one_of_several_that_put_a_new_task_created_it(changeable: Serving, tmp_path: Path) -> None:
    data = task_file(tmp_path, "newcomer")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: put(changeable, "newcomer", data), range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]


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
        task_file(tmp_path, "letters", seed=2)
        shutil.move(tmp_path / "letters-2.bytes", files.tasks / "letters.safetensors")
        running.until(lambda: digest("letters") is not None)
        assert running.classify(IMAGE, "letters").json()["generation"] == 2
        (files.tasks / "letters.safetensors").unlink()
        running.until(lambda: running.classify(IMAGE, "letters").status_code == 404)
        assert running.client.get("/v1/tasks/digits").json()["state"] == "available"


def test_a_family_that_was_never_timed_is_timed_once_it_serves(files: Files, tmp_path: Path) -> None:
    data = task_file(tmp_path, "letters", adapter=Method("lora", {"dim": 3}))
    with serving(small_settings(files, admin_key=KEY, watch=False, calibration_repeats=1)) as running:
        assert put(running, "letters", data).status_code == 201

        def points() -> list[object]:
            calibration = running.client.get("/v1/savings").json()["calibration"]
            return next(one["points"] for one in calibration if one["task"] == "letters")

        running.until(lambda: len(points()) == 3)  # batches of 1, 2 and 4


def test_a_condition_keeps_what_was_put_into_the_folder_meanwhile(files: Files, tmp_path: Path) -> None:
    letters, digits = files.tasks / "letters.safetensors", files.tasks / "digits.safetensors"
    first, second = task_file(tmp_path, "letters", 1), task_file(tmp_path, "letters", 2)
    with serving(small_settings(files, admin_key=KEY, watch=False)) as running:
        etag = running.client.get("/v1/tasks/digits").headers["etag"]
        letters.write_bytes(first)
        refused = put(running, "letters", second, **{"if-none-match": "*"})
        assert (refused.status_code, refused.json()["error_type"]) == (409, "conflict")
        assert letters.read_bytes() == first
        dropped = task_file(tmp_path, "digits", 3)
        digits.write_bytes(dropped)
        for answer in (
            put(running, "digits", task_file(tmp_path, "digits", 4), **{"if-match": etag}),
            running.client.delete("/v1/tasks/digits", headers={**ADMIN, "if-match": etag}),
        ):
            assert (answer.status_code, answer.json()["error_type"]) == (409, "conflict")
            assert digits.read_bytes() == dropped
        loaded = running.client.post("/v1/tasks/digits/load", headers={**ADMIN, "if-match": etag})
        assert loaded.json()["generation"] == 2
        etag = f'"{loaded.json()["digest"]}"'
        assert put(running, "digits", task_file(tmp_path, "digits", 4), **{"if-match": etag}).status_code == 200
        assert put(running, "letters", second).status_code == 201  # without a condition the last one wins
