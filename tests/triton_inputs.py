"""The stock `tritonclient`, and pictures in all forms that it can send them in."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pictures
import torch
from PIL import Image
from serving import Serving
from tritonclient.http import InferenceServerClient, InferInput

from fpet.images import to_rgb
from fpet.preprocess import Preprocessing

IMAGES = [pictures.png(seed) for seed in range(3)]
SIZE = (16, 16)


def connected(service: Serving) -> InferenceServerClient:
    """The client of a service."""
    host, port = service.address
    return InferenceServerClient(f"{host}:{port}", concurrency=4)


def pixels() -> np.ndarray[Any, Any]:
    """The images as the task sees them, uint8 [N, 3, H, W]."""
    images = [to_rgb(Image.open(io.BytesIO(data))) for data in IMAGES]
    return torch.stack([Preprocessing(SIZE).resize(image) for image in images]).numpy()


def tensor(name: str, datatype: str, values: np.ndarray[Any, Any], binary: bool) -> InferInput:
    """An input with these values, as binary data or in JSON."""
    made = InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def encoded(binary: bool) -> InferInput:
    """The images as files."""
    texts = IMAGES if binary else [base64.b64encode(data) for data in IMAGES]
    return tensor("image", "BYTES", np.array(texts, dtype=np.object_), binary)


def uint8(binary: bool) -> InferInput:
    """Their pixels."""
    return tensor("pixels", "UINT8", pixels(), binary)


def fp32(binary: bool) -> InferInput:
    """Their pixels, normalised."""
    normalized = Preprocessing(SIZE).normalize(torch.from_numpy(pixels()), torch.float32)
    return tensor("input", "FP32", normalized.numpy(), binary)
