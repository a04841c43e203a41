"""Nothing that happens in the task folder goes unnoticed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from service.tasks.watch import follow

pytestmark = pytest.mark.anyio


async def followed(folder: Path, changed: Callable[[], Awaitable[None]], end: asyncio.Event) -> None:
    """Follows the folder until the event."""
    following = asyncio.create_task(follow(folder, changed))
    try:
        await asyncio.wait_for(end.wait(), timeout=30)
    finally:
        following.cancel()
        await asyncio.wait([following])


async def test_what_changes_before_the_watch_begins_is_noticed(tmp_path: Path) -> None:
    noticed = asyncio.Event()

    async def changed() -> None:
        if (tmp_path / "late").exists():
            noticed.set()
        (tmp_path / "late").touch()  # after the first look at the folder, and before there can be an event

    await followed(tmp_path, changed, noticed)


async def test_a_folder_that_cannot_be_looked_at_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls, enough = 0, asyncio.Event()

    async def changed() -> None:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise PermissionError(tmp_path)
        enough.set()

    await followed(tmp_path, changed, enough)
    (record,) = caplog.records  # of two failures in a row
    assert "trying again" in record.getMessage()


async def test_a_folder_whose_name_is_not_utf_8_is_looked_at_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    calls, enough = 0, asyncio.Event()

    async def changed() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            enough.set()

    await followed(folder, changed, enough)
    (record,) = caplog.records
    assert record.exc_info is None  # one line: what the watch cannot take is no fault of ours


async def test_a_file_whose_name_is_not_utf_8_takes_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looks, enough = 0, asyncio.Event()

    async def changed() -> None:
        nonlocal looks
        looks += 1
        if looks == 2:  # from here on there is a watch, which is told of what happens
            (tmp_path / os.fsdecode(b"bad\xff.safetensors")).touch()
        if caplog.records:
            enough.set()

    await followed(tmp_path, changed, enough)
    (record,) = caplog.records
    assert record.exc_info is None
    assert "Unable to decode path" in record.getMessage()


async def test_each_time_that_the_folder_is_lost_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    looks, enough = iter([True, False, False, True, True]), asyncio.Event()

    async def changed() -> None:
        lost = next(looks, None)
        if lost is None:
            enough.set()
        elif lost:
            raise PermissionError(tmp_path)
        (tmp_path / "changed").touch()

    await followed(tmp_path, changed, enough)
    assert len(caplog.records) == 2
