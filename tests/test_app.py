"""The application: what it refuses to start with, and what it says before it is warm."""

from __future__ import annotations

import asyncio
import gc
import shutil
import weakref
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import httpx
import pictures
import pytest
import torch
from fastapi import FastAPI
from serving import Files, serving, small_settings
from torch import Tensor

from fpet.errors import BackboneError, TaskError
from fpet.inference.mixed import Template
from fpet.inference.task_weights import Weights
from service.app import create_app

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(small_files: Files) -> AsyncIterator[FastAPI]:
    """Started, and not yet warm until somebody waits for it."""
    app = create_app(small_settings(small_files))
    async with app.router.lifespan_context(app):
        yield app


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        yield client


async def classify(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/v1/tasks/digits/classify", content=pictures.png(), headers={"content-type": "image/png"})


async def test_it_lives_before_it_is_ready(app: FastAPI, client: httpx.AsyncClient) -> None:
    assert (await client.get("/livez")).status_code == 200
    early = await client.get("/readyz")
    assert (early.status_code, early.json()) == (503, {"status": "starting"})
    refused = await classify(client)
    assert (refused.status_code, refused.json()["error_type"]) == (503, "not_ready")
    assert refused.headers["retry-after"]
    await app.runtime.warm.wait()
    assert (await client.get("/readyz")).status_code == 200
    assert (await classify(client)).status_code == 200


async def test_it_ends_while_it_warms_up(small_files: Files) -> None:
    app = create_app(small_settings(small_files, calibration_repeats=100))
    async with app.router.lifespan_context(app):
        pass
    assert app.runtime.status == "draining"


async def test_a_bad_task_file_is_reported_and_the_others_serve(small_files: Files, tmp_path: Path) -> None:
    for path in small_files.tasks.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "broken.safetensors").write_bytes(b"no task")
    app = create_app(small_settings(small_files, tasks=tmp_path))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await app.runtime.warm.wait()
        broken = (await client.get("/v1/tasks/broken")).json()
        assert broken["state"] == "failed"
        assert broken["reason"].startswith("broken.safetensors: not a complete safetensors file")
        assert str(tmp_path) not in broken["reason"]
        assert (await classify(client)).status_code == 200
        refused = await client.post(
            "/v1/tasks/broken/classify", content=pictures.png(), headers={"content-type": "image/png"}
        )
        assert (refused.status_code, refused.json()["error_type"]) == (503, "not_ready")
        assert "retry-after" not in refused.headers  # to ask again would help nobody


@pytest.mark.parametrize("preload", ["broken", "broken,digits", "*"])
async def test_it_is_not_ready_without_the_tasks_that_are_to_be_there(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture, preload: str
) -> None:
    if preload != "*":
        (tmp_path / "digits.safetensors").write_bytes((small_files.tasks / "digits.safetensors").read_bytes())
    (tmp_path / "broken.safetensors").write_bytes(b"no task")
    app = create_app(small_settings(small_files, tasks=tmp_path, preload=preload))
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://x") as client:
        await until_failed(client)
        assert (await classify(client)).status_code == 503
    assert "the service cannot start: tasks that are to be there cannot serve: broken\n" in caplog.text


async def test_it_ends_when_the_backbone_fails(small_files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """As after an error of the GPU from which it does not recover."""
    app = create_app(small_settings(small_files))
    async with app.router.lifespan_context(app):
        runtime, transport = app.runtime, httpx.ASGITransport(app)
        await runtime.warm.wait()
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            runtime.engine.backbone.vit.norm.weight.resize_(1)
            assert (await classify(client)).status_code == 500
            await until_failed(client)
    assert "the service cannot go on: the backbone fails" in caplog.text


async def test_a_batch_that_failed_holds_no_memory(
    small_files: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even until the backbone is tried: on a GPU what it held may be what was missing."""
    embeddings: list[weakref.ref[Tensor]] = []
    left: list[int] = []
    features = Template.features

    def noted(self: Template, weights: Sequence[Weights], images: Tensor, *, reduced: bool) -> Tensor:
        output = features(self, weights, images, reduced=reduced)
        embeddings.append(weakref.ref(output))
        return output

    def look(*_: object) -> None:
        left.append(sum(one() is not None for one in embeddings))

    app = create_app(small_settings(small_files))
    async with app.router.lifespan_context(app):
        runtime, transport = app.runtime, httpx.ASGITransport(app)
        await runtime.warm.wait()
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            digits = runtime.catalog.entries.loaded("digits")
            digits.weights.head.data = torch.zeros(10, 1)  # only now does a batch fail
            monkeypatch.setattr(Template, "features", noted)
            hook = runtime.engine.backbone.vit.norm.register_forward_hook(look)
            gc.collect()
            gc.disable()
            try:
                assert (await classify(client)).status_code == 500
                look()
            finally:
                gc.enable()
                hook.remove()
            assert (await client.get("/readyz")).status_code == 200
    assert len(embeddings) == 1
    assert left == [0, 0]  # in the backbone alone, and afterwards
    assert "service/model/heads.py" in caplog.text  # where it failed is not lost


async def until_failed(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while (await client.get("/readyz")).json() != {"status": "failed"}:
            await asyncio.sleep(0)  # in the same process nothing else runs until somebody lets it


async def test_it_does_not_start_without_its_files(small_files: Files, tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="the task folder does not exist"):
        create_app(small_settings(small_files, tasks=tmp_path / "nowhere"))
    with pytest.raises(BackboneError, match="backbone"):
        create_app(small_settings(small_files, backbone=tmp_path / "backbone"))


@pytest.mark.parametrize("admin_key", [None, "correct horse battery"])
def test_where_no_task_can_be_put_it_is_ready_once_there_is_one(
    admin_key: str | None, small_files: Files, tmp_path: Path
) -> None:
    """New instances on a volume that is empty, or not the right one, must not replace those that can answer."""
    with serving(small_settings(Files(small_files.backbone, tmp_path), admin_key=admin_key)) as service:
        early = service.client.get("/readyz")
        if admin_key is None:
            assert (early.status_code, early.json()) == (503, {"status": "starting"})
            assert service.client.get("/v2/health/ready").status_code == 503
            assert service.client.get("/livez").status_code == 200
            shutil.copy(small_files.tasks / "digits.safetensors", tmp_path)
            service.until(lambda: service.client.get("/readyz").status_code == 200)
            assert service.classify(pictures.png()).status_code == 200
            (tmp_path / "digits.safetensors").unlink()
            service.until(lambda: service.classify(pictures.png()).status_code == 404)
        assert service.client.get("/readyz").json() == {"status": "ready"}


async def test_tasks_of_which_none_is_loaded_may_be_a_mistake(
    small_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(small_settings(small_files, preload=""))
    async with app.router.lifespan_context(app):
        await app.runtime.warm.wait()
    assert f"no task of {small_files.tasks} is loaded; until one is, /readyz says 503" in caplog.messages


async def test_a_folder_without_tasks_may_be_a_mistake(
    small_files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(small_settings(Files(small_files.backbone, tmp_path)))
    async with app.router.lifespan_context(app):
        await app.runtime.warm.wait()
    assert f"there is no task in {tmp_path}; until one is, /readyz says 503" in caplog.messages
