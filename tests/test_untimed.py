"""What cannot be timed is not tried again and again while it stays what it is."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from catalogs import scan
from changing import put, task_file
from serving import ADMIN, KEY, Files, serving, small_settings

from fpet.header import Method


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
