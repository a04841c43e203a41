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
from serving import ADMIN, KEY, SECONDS, Files, serving, small_settings

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


async def failed_start(files: Files) -> bool:
    """Starts a service; whether it failed."""
    app = create_app(small_settings(files))
    async with app.router.lifespan_context(app), asyncio.timeout(SECONDS):
        await next(task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "warm_up")
        return app.failed


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
    assert await failed_start(small_files)
    assert "the service cannot start: out of memory" in caplog.text


@pytest.mark.anyio
async def test_if_the_backbone_fails_too_the_service_does_not_start(
    small_files: Files, untimed: set[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after an error from which a GPU does not recover."""
    untimed.add("plain")
    bare = Engine.run_bare

    def fails(engine: Engine, size: int) -> None:
        if "timing the task plain failed" in caplog.text:
            raise RuntimeError("the device is lost")
        bare(engine, size)

    monkeypatch.setattr(Engine, "run_bare", fails)
    caplog.set_level("INFO", logger="service.runtime")
    assert await failed_start(small_files)
    assert "the service cannot go on: the backbone fails" in caplog.text
    assert "ready: " not in caplog.text
