"""Task files to change a service by, and what they must answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import httpx
import pictures
import torch
from serving import ADMIN, Serving, write_task
from small import small_backbone, small_header

from fpet.task import Task
from service.decode import decode_image

IMAGE = pictures.png()


def task_file(folder: Path, name: str = "digits", seed: int = 1, **changes: object) -> bytes:
    """The bytes of a task file of that name."""
    backbone, path = small_backbone(), folder / f"{name}-{seed}.bytes"
    write_task(path, dataclasses.replace(small_header(backbone), name=name, **changes), backbone, seed)
    return path.read_bytes()


def logits_of(data: bytes) -> list[float]:
    """What a task file makes of `IMAGE`."""
    task = Task.parse(data, Path("expected"))
    preprocessing = task.header.preprocessing
    image = preprocessing.resize(decode_image(IMAGE, ("png",), 10_000))
    with torch.inference_mode():
        logits = task.build(small_backbone())(preprocessing.normalize(image[None], torch.float32))[0]
    values: list[float] = logits.tolist()
    return values


def post(service: Serving, path: str) -> httpx.Response:
    """Asks for a change of that path, as an administrator."""
    return service.client.post(path, headers=ADMIN)


def put(service: Serving, name: str, data: bytes, **headers: str) -> httpx.Response:
    """Puts it into service, as an administrator."""
    return service.client.put(f"/v1/tasks/{name}", content=data, headers={**ADMIN, **headers})
