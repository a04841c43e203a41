"""Safetensors files: metadata and tensors, read whole and written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fpet.errors import FpetError
from fpet.files import read_bytes, write_atomically
from fpet.words import reason

_LENGTH_BYTES = 8
_MAX_DIMENSIONS = 16  # torch stores tensors with more than 64 but cannot compute with them


def parse_safetensors(data: bytes, origin: Path, error: type[FpetError]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file's bytes; raises `error` naming `origin` if they are not one."""
    try:
        tensors = safetensors.torch.load(data)
        length = int.from_bytes(data[:_LENGTH_BYTES], "little")
        header = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + length])
    # torch raises the last two for a shape with no elements of which one dimension is larger than it can count. A shape
    # cannot make it allocate more memory than the file has bytes.
    except (SafetensorError, ValueError, KeyError, RecursionError, TypeError, RuntimeError) as cause:
        raise error(f"{origin}: not a complete safetensors file: {reason(cause)}") from cause
    for name, tensor in tensors.items():
        if tensor.ndim > _MAX_DIMENSIONS:
            raise error(f"{origin}: the tensor {name!r} has {tensor.ndim} dimensions")
    return header.get("__metadata__") or {}, tensors


def read_safetensors(path: Path, error: type[FpetError]) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata and tensors of a safetensors file; raises `error` if it cannot be read or is not one."""
    return parse_safetensors(read_bytes(path, error), path, error)


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], error: type[FpetError]
) -> None:
    """Writes a safetensors file atomically."""
    write_atomically(path, safetensors.torch.save(dict(tensors), dict(metadata)), error)
