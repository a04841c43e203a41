"""LitServe with batches, and a worker a core as its documentation advises for the CPU.

python -m benchmarks.peers.lit FOLDER PORT WORKERS
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import litserve
from torch import Tensor

from benchmarks.peers.models import Models

_MAX_BATCH = 16
_BATCH_TIMEOUT = 0.01  # seconds that a batch may wait to fill; with 0 its workers poll without a pause


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Images in base64, with the name of the model to ask."""

    def __init__(self, folder: Path) -> None:
        super().__init__(max_batch_size=_MAX_BATCH, batch_timeout=_BATCH_TIMEOUT)
        self._folder = folder

    def setup(self, device: str) -> None:  # noqa: ARG002
        """Called once in each worker."""
        self._models = Models(self._folder)

    def decode_request(self, request: dict[str, str]) -> tuple[str, Tensor]:
        """The model's name and the pixels."""
        return request["model"], self._models.decode(base64.b64decode(request["image"]))

    def batch(self, inputs: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        """Leaves it to `predict` what can run together."""
        return inputs

    def predict(self, inputs: list[tuple[str, Tensor]]) -> list[dict[str, Any]]:
        """The answers in their order."""
        names, images = zip(*inputs, strict=True)
        return self._models.classify_each(names, images)

    def unbatch(self, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One answer an image already."""
        return outputs

    def encode_response(self, output: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return output


if __name__ == "__main__":
    folder, port, workers = sys.argv[1:]
    server = litserve.LitServer(Api(Path(folder)), accelerator="cpu", workers_per_device=int(workers), fast_queue=True)
    server.run(port=int(port), host="127.0.0.1", log_level="warning", generate_client_file=False)
