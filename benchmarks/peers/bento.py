"""BentoML with its adaptive batches, and a worker a core.

python -m benchmarks.peers.bento FOLDER PORT
"""

from __future__ import annotations

import base64
import os
import sys
from pathlib import Path
from typing import Any

import bentoml
from pydantic import BaseModel

from benchmarks.peers.models import Models
from fpet.hardware.cores import cores

_FOLDER = "PEER_FOLDER"  # for the processes that BentoML starts
_MAX_BATCH = 16


class Question(BaseModel):
    """The model to ask, and the image in base64."""

    model: str
    image: str


@bentoml.service(workers=cores(), logging={"access": {"enabled": False}})
class Peer:
    """The models in one process."""

    def __init__(self) -> None:
        self._models = Models(Path(os.environ[_FOLDER]))

    @bentoml.api(batchable=True, max_batch_size=_MAX_BATCH)  # type: ignore[untyped-decorator]
    def classify(self, questions: list[Question]) -> list[dict[str, Any]]:
        """One answer a question, in their order."""
        pixels = [self._models.decode(base64.b64decode(question.image)) for question in questions]
        return self._models.classify_each([question.model for question in questions], pixels)


if __name__ == "__main__":
    folder, port = sys.argv[1:]
    environment = {_FOLDER: folder, "BENTOML_HOME": str(Path(folder, "bentoml")), "BENTOML_DO_NOT_TRACK": "True"}
    command = ["serve", "--quiet", "--host", "127.0.0.1", "--port", port, "benchmarks.peers.bento:Peer"]
    os.execve(sys.executable, [sys.executable, "-m", "bentoml", *command], {**os.environ, **environment})
