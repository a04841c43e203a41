"""A plain FastAPI app: a thread a core, and no batches.

python -m benchmarks.peers.plain FOLDER PORT PROCESSES THREADS
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request

from benchmarks.peers.models import Models

_FOLDER, _THREADS = "PEER_FOLDER", "PEER_THREADS"  # for the processes that uvicorn starts


def create_app() -> FastAPI:
    """The app in one process."""
    models = Models(Path(os.environ[_FOLDER]))
    threads = ThreadPoolExecutor(int(os.environ[_THREADS]))
    app = FastAPI()

    def answer(name: str, body: bytes) -> dict[str, Any]:
        return models.classify(name, [models.decode(body)])[0]

    @app.post("/{name}")
    async def classify(name: str, request: Request) -> dict[str, Any]:
        body = await request.body()
        return await asyncio.get_running_loop().run_in_executor(threads, answer, name, body)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    os.environ[_FOLDER], port, processes, os.environ[_THREADS] = sys.argv[1:]
    uvicorn.run(
        "benchmarks.peers.plain:create_app", factory=True, port=int(port), workers=int(processes), log_level="warning"
    )
