"""Small real files of every kind that is read, to be mutated: pictures, tasks, backbones and inference requests."""

from __future__ import annotations

import base64
import io
import json
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fpet.backbone import Backbone, create_backbone, save_backbone
from fpet.header import BackboneRef, HeadSpec, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import new_model, save_task

SIDE = 16  # pixels of the images that the small backbone takes
_ARCHITECTURE = "vit_tiny_patch16_224"
_ARGUMENTS = {"img_size": SIDE, "patch_size": 8, "embed_dim": 8, "depth": 1, "num_heads": 2}
METHODS = [
    (Method("adaptformer", {"dim": 2, "bits": 1}), Method("bdm", {"block": 0, "dim": 2}), HeadSpec()),
    (Method("lora", {"dim": 2}), Method("none"), HeadSpec(bits=8)),
    (Method("vpt-shallow", {"prompts": 2}), Method("none"), HeadSpec(bias=False)),
]


def pictures() -> tuple[bytes, ...]:
    """Of every accepted format and the modes that it has."""
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8)).resize((20, 14))
    sixteen_bits = Image.fromarray(np.linspace(0, 65535, 280).reshape(14, 20).astype(np.uint16))
    exif = Image.Exif()
    exif[0x0112] = 6
    palette = image.convert("P")
    return (
        _encode(image, "PNG"),
        _encode(image, "PNG", exif=exif),
        _encode(sixteen_bits, "PNG"),
        _encode(palette, "PNG", transparency=bytes(range(256))),
        *(_encode(image.convert(mode), "PNG") for mode in ("1", "L", "LA", "RGBA")),
        _encode(image, "JPEG"),
        _encode(image, "JPEG", progressive=True, exif=exif),
        _encode(image.convert("L"), "JPEG"),
        _encode(image.convert("CMYK"), "JPEG"),
        _encode(image, "MPO", save_all=True, append_images=[image]),
        *(_encode(image.convert(mode), "WEBP", lossless=lossless) for mode in ("RGB", "RGBA") for lossless in (0, 1)),
        _encode(image, "WEBP", exif=exif),
        _encode(image, "GIF"),
        _encode(image, "GIF", save_all=True, append_images=[palette]),
        _encode(palette, "GIF", transparency=3, interlace=1),
        *(_encode(image.convert(mode), "BMP") for mode in ("1", "L", "P", "RGB", "RGBA")),
    )


def backbone() -> Backbone:
    """So small that a task of it is built in a moment."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create_backbone(_ARCHITECTURE, _ARGUMENTS)


def tasks(backbone: Backbone) -> tuple[bytes, ...]:
    """Task files of that backbone: one-bit, full and eight-bit weights, with a reduction and without."""
    return tuple(task(backbone, "small", *methods) for methods in METHODS)


def task(backbone: Backbone, name: str, adapter: Method, reducer: Method, head: HeadSpec) -> bytes:
    """A task file of that backbone and name."""
    header = TaskHeader(
        name=name,
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=adapter,
        reducer=reducer,
        labels=("cat", "dog", "émeu"),
        preprocessing=Preprocessing((SIDE, SIDE)),
        head=head,
        provenance={"data": {"source": "none"}, "seed": 0},
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.safetensors"
        save_task(path, header, new_model(header, backbone))
        return path.read_bytes()


def described_backbone(backbone: Backbone) -> bytes:
    """A backbone file of ours."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backbone.safetensors"
        save_backbone(path, backbone, provenance={"source": "none"})
        return path.read_bytes()


def numpy_archive(backbone: Backbone) -> bytes:
    """The same weights as an .npz archive."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value.numpy() for name, value in backbone.vit.state_dict().items()})
    return buffer.getvalue()


def torch_checkpoint(backbone: Backbone) -> bytes:
    """The same weights as a training script saves them."""
    buffer = io.BytesIO()
    torch.save({"model": backbone.vit.state_dict(), "epoch": 3}, buffer)
    return buffer.getvalue()


def image_documents() -> tuple[bytes, ...]:
    """JSON bodies of a classification."""
    one = base64.b64encode(pictures()[0]).decode()
    return tuple(json.dumps({"images": images}).encode() for images in ([one], [f"data:image/png;base64,{one}", one]))


def inferences() -> tuple[bytes, ...]:
    """Bodies of the Open Inference Protocol, each behind a line with where its JSON ends and one with its encoding."""
    picture = pictures()[0]
    packed = len(picture).to_bytes(4, "little") + picture
    pixels, values = bytes(range(256)) * 3, [0.5] * (3 * SIDE * SIDE)
    size = {"parameters": {"binary_data_size": len(packed)}}
    encoded = {"parameters": {"content_type": "base64"}, "data": [base64.b64encode(picture).decode()]}
    asked = [{"name": "probabilities", "parameters": {"classification": 2, "binary_data": True}}, {"name": "labels"}]
    flat = [1, 3, SIDE, SIDE]
    documents: list[tuple[dict[str, Any], bytes]] = [
        (_input("image", "BYTES", [1], **size), packed),
        (_input("image", "BYTES", [1, 1], **encoded) | {"id": "7", "outputs": asked}, b""),
        (_input("pixels", "UINT8", flat, parameters={"binary_data_size": len(pixels)}), pixels),
        (_input("input", "FP32", flat, data=values) | {"parameters": {"tokens": "full", "timeout": 9}}, b""),
    ]
    bodies = [(json.dumps(document).encode(), behind) for document, behind in documents]
    plain = [b"%d\n\n" % len(text) + text + behind for text, behind in bodies]
    return (*plain, b"\ngzip\n" + _gzip(bodies[1][0]), b"\ndeflate\n" + zlib.compress(bodies[3][0]))


def _input(name: str, datatype: str, shape: list[int], **more: Any) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": datatype, "shape": shape, **more}]}


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


def _encode(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()
