"""Reading safetensors files whole and writing files so that a half-written one is never seen."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fpet.errors import FpetError

_LENGTH_BYTES = 8
_MAX_DIMENSIONS = 16  # torch stores tensors with more than 64 but cannot compute with them


def parse_safetensors(data: bytes, origin: Path, error: type[FpetError]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file's bytes; raises `error` naming `origin` if they are not one."""
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
    except (SafetensorError, ValueError, KeyError, RecursionError) as cause:
        raise error(f"{origin}: not a complete safetensors file: {cause}") from cause
    for name, tensor in tensors.items():
        if tensor.ndim > _MAX_DIMENSIONS:
            raise error(f"{origin}: the tensor {name!r} has {tensor.ndim} dimensions")
    return header.get("__metadata__") or {}, tensors


def read_bytes(path: Path, error: type[FpetError]) -> bytes:
    """The file's content, read once; raises `error` if it cannot be."""
    try:
        return path.read_bytes()
    except OSError as cause:
        raise error(f"{path}: cannot be read: {cause.strerror}") from cause


def read_safetensors(path: Path, error: type[FpetError]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file; raises `error` if it cannot be read or is not one."""
    return parse_safetensors(read_bytes(path, error), path, error)


def write_atomically(path: Path, data: bytes, error: type[FpetError]) -> None:
    """Writes beside `path`, syncs and renames: a reader sees the old content or the new, never a part.

    Raises:
        `error`: if the disk is full or the folder cannot be written; the old content stays.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as cause:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise error(f"{path}: cannot be written: {cause.strerror}") from cause


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], error: type[FpetError]
) -> None:
    """Writes a safetensors file atomically."""
    write_atomically(path, safetensors.torch.save(dict(tensors), dict(metadata)), error)
