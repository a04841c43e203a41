"""What cannot be timed keeps nothing else from serving, and is not tried again and again while it stays what it is."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pictures
import pytest
from catalogs import scan
from changing import put, task_file
from serving import ADMIN, KEY, Files, serving, small_settings

from fpet.header import Method
from service.app import create_app
from service.engine import Engine
from service.model.loaded import LoadedTask


def test_neither_a_look_at_the_folder_nor_another_task_has_it_timed_again(
    files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with serving(small_settings(files, admin_key=KEY, watch=False)) as service:
        runtime = service.runtime

        def seconds(*_: object, **__: object) -> float:
            raise RuntimeError("out of memory")

        monkeypatch.setattr(runtime.engine, "seconds", seconds)
        data = task_file(tmp_path, "other", adapter=Method("lora", {"dim": 4}))
        assert put(service, "other", data).status_code == 201
        for _ in range(5):
            looking = runtime.administer(partial(scan, runtime.catalog))
            asyncio.run_coroutine_threadsafe(looking, service.loop).result()
        assert service.client.post("/v1/tasks/plain/load", headers=ADMIN).status_code == 200
        runtime.pools.calibrator.submit(int).result()
        assert caplog.text.count("timing the task other failed") == 1


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of tasks whose timing fails, as by a batch for which a GPU has no memory."""
    names, calibrate = set[str](), Engine.calibrate

    def fails(engine: Engine, task: LoadedTask, *arguments: Any, **options: Any) -> None:
        if task.header.name in names:
            raise RuntimeError("out of memory")
        calibrate(engine, task, *arguments, **options)

    monkeypatch.setattr(Engine, "calibrate", fails)
    return names


def test_a_family_that_cannot_be_timed_keeps_no_other_from_serving(
    small_files: Files, untimed: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    untimed.add("plain")
    with serving(small_settings(small_files)) as service:
        for task in ("digits", "plain"):
            assert service.classify(pictures.png(), task).status_code == 200
    assert caplog.text.count("timing the task plain failed") == 1
    assert "out of memory" in caplog.text


@pytest.mark.anyio
async def test_if_no_family_can_be_timed_the_service_does_not_start(
    small_files: Files, untimed: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    untimed.update(("digits", "plain"))
    app = create_app(small_settings(small_files))
    async with app.router.lifespan_context(app):
        while app.runtime.status == "starting":
            await asyncio.sleep(0)
        assert app.failed
    assert "the service cannot start: out of memory" in caplog.text
