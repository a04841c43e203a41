"""Requests of the Open Inference Protocol by hand, about the task `digits`."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import pictures
from serving import Serving

IMAGE = pictures.png()
TEXT = base64.b64encode(IMAGE).decode()
BASE64 = {"content_type": "base64"}
INFER = "/v2/models/digits/infer"
ELEMENTS = 3 * 16 * 16
PIXELS = {"name": "pixels", "datatype": "UINT8", "shape": [1, 3, 16, 16]}
FP32 = {"name": "input", "datatype": "FP32", "shape": [1, 3, 16, 16]}
BYTES = {"name": "image", "datatype": "BYTES", "shape": [1]}
GOOD = {**PIXELS, "data": [7] * ELEMENTS}
BINARY = {**PIXELS, "parameters": {"binary_data_size": ELEMENTS}}
ENCODED = {**BYTES, "data": [TEXT], "parameters": BASE64}
PACKED = len(IMAGE).to_bytes(4, "little") + IMAGE


def infer(service: Serving, *inputs: dict[str, Any], path: str = INFER, **fields: Any) -> httpx.Response:
    """All of it in JSON."""
    return service.client.post(path, json={"inputs": inputs, **fields})


def send(
    service: Serving, document: object, behind: bytes = b"", length: str | None = None, **headers: str
) -> httpx.Response:
    """JSON with bytes behind it, and by default a header that says where it ends."""
    text = json.dumps(document).encode()
    head = {"inference-header-content-length": str(len(text)) if length is None else length}
    return service.client.post(INFER, content=text + behind, headers={**head, **headers})
