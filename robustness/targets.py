"""What reads bytes from outside: each may take them or refuse them with its own errors, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from PIL import Image

from fpet.backbone import load_backbone
from fpet.backbone_files.checkpoints import read_checkpoint
from fpet.errors import FpetError, TaskError
from fpet.task import Task
from robustness import samples
from robustness.containers import mutate_image, mutate_safetensors, mutate_zip
from robustness.mutate import Mutate, mutate, mutate_json
from service.decode import decode_image
from service.engine import Engine
from service.errors import ServiceError
from service.inputs import parse_json
from service.metrics import Metrics
from service.v2.binary import inflate
from service.v2.request import read_request
from service.v2.tensors import Limits

_FORMATS = ("jpeg", "png", "webp", "gif", "bmp")
_MAX_PIXELS = 2**22
_MAX_BODY = 2**20
_MAX_IMAGES = 4
_FILE = Path("small.safetensors")


@dataclass(frozen=True)
class Target:
    """samples: what it takes; structured: a mutation that keeps their container whole; refusals: its own errors."""

    samples: tuple[bytes, ...]
    structured: Mutate
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]

    def case(self, seed: int, index: int) -> bytes:
        """The bytes of a case, the same whenever they are asked for."""
        random = Random(f"{seed} {index}")
        change = self.structured if random.random() < 0.6 else mutate
        return change(random, random.choice(self.samples), self.samples)


def _images() -> Target:
    Image.init()
    return Target(
        samples.pictures(), mutate_image, lambda data: decode_image(data, _FORMATS, _MAX_PIXELS), (ServiceError,)
    )


def _image_documents() -> Target:
    return Target(
        samples.image_documents(), _mutate_document, lambda data: parse_json(data, _MAX_IMAGES), (ServiceError,)
    )


def _inferences() -> Target:
    limits = Limits((samples.SIDE, samples.SIDE), _MAX_IMAGES)

    def run(data: bytes) -> object:
        length, encoding, body = [*data.split(b"\n", 2), b"", b""][:3]
        inflated = inflate(body, encoding.decode("latin-1") or None, _MAX_BODY)
        return read_request(inflated, length.decode("latin-1") or None, limits)

    return Target(samples.inferences(), _mutate_inference, run, (ServiceError,))


def _tasks() -> Target:
    return Target(
        samples.tasks(samples.backbone()), mutate_safetensors, lambda data: Task.parse(data, _FILE), (TaskError,)
    )


def _models() -> Target:
    """Tasks as they come into service: parsed, checked against the backbone, unpacked, and run once."""
    backbone = samples.backbone()
    engine = Engine(backbone, torch.device("cpu"), torch.float32, Metrics([], []))
    return Target(
        samples.tasks(backbone),
        mutate_safetensors,
        lambda data: engine.load(Task.parse(data, _FILE), 1),
        (TaskError,),
    )


def _checkpoints() -> Target:
    backbone = samples.backbone()
    path = _file_in_memory()

    def run(data: bytes) -> object:
        path.write_bytes(data)
        return read_checkpoint(path)

    archives = (samples.numpy_archive(backbone), samples.torch_checkpoint(backbone))
    return Target((samples.described_backbone(backbone), *archives), _mutate_checkpoint, run, (FpetError,))


def _backbones() -> Target:
    path = _file_in_memory()

    def run(data: bytes) -> object:
        path.write_bytes(data)
        return load_backbone(path)

    return Target((samples.described_backbone(samples.backbone()),), mutate_safetensors, run, (FpetError,))


def _file_in_memory() -> Path:
    """A path that lasts as long as this process and leaves nothing behind."""
    return Path(f"/proc/self/fd/{os.memfd_create('case')}")


def _mutate_checkpoint(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    return (mutate_zip if data.startswith(b"PK") else mutate_safetensors)(random, data, donors)


def _mutate_document(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:  # noqa: ARG001
    return mutate_json(random, data.decode()).encode("utf-8", "replace")


def _mutate_inference(random: Random, data: bytes, donors: Sequence[bytes]) -> bytes:
    """Another JSON whose length is as announced, or other bytes behind it."""
    length, encoding, body = data.split(b"\n", 2)
    if encoding:
        return b"\n".join((length, encoding, mutate(random, body, donors)))
    text, behind = body[: int(length)], body[int(length) :]
    if behind and random.random() < 0.3:
        behind = mutate(random, behind, donors)
    else:
        text = mutate_json(random, text.decode()).encode("utf-8", "replace")
    return b"%d\n\n" % len(text) + text + behind


# How many of a hundred cases each gets: most go where bytes of strangers do, few where a case takes milliseconds.
TARGETS: dict[str, tuple[int, Callable[[], Target]]] = {
    "images": (40, _images),
    "image documents": (8, _image_documents),
    "inferences": (20, _inferences),
    "tasks": (20, _tasks),
    "models": (3, _models),
    "checkpoints": (8, _checkpoints),
    "backbones": (1, _backbones),
}
