"""What cannot be timed is not tried again and again while nothing changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from changing import put, task_file
from serving import KEY, Files, serving, small_settings

from fpet.header import Method


def test_a_look_at_the_folder_times_nothing_again(
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
            asyncio.run_coroutine_threadsafe(runtime.administer(runtime.catalog.scan), service.loop).result()
        runtime._calibrator.submit(int).result()
        assert caplog.text.count("timing the task other failed") == 1
