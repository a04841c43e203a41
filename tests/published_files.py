"""Files of the layout of the published Bi-LoRA and Bi-AdaptFormer adapters, for a small backbone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from small import small_backbone
from torch import Tensor

from fpet.backbone import save_backbone

DEPTH, CHANNELS, CLASSES, DIM = 2, 24, 5, 4
MATRICES = {"adaptformer": ("down", "up"), "lora": ("q.down", "q.up", "v.down", "v.up")}


def record(rows: int, columns: int, random: np.random.Generator) -> tuple[bytes, Tensor]:
    """A quantised matrix as the authors stored it, and its values."""
    signs = random.integers(0, 2, (rows, columns)).astype(np.uint8)
    mean, std = random.normal(0, 0.01), random.uniform(0.01, 0.05)
    stored = np.packbits(signs, bitorder="little").tobytes() + np.array([mean, std], "<f4").tobytes()
    return stored, torch.tensor((signs * 2.0 - 1) * 0.6744898 * std + mean, dtype=torch.float32)


def written(path: Path, kind: str, head_bits: int) -> dict[str, Tensor]:
    """Writes a file of the published layout for the small backbone; returns the weights that it stands for."""
    random = np.random.default_rng(0)
    weights: dict[str, Tensor] = {}
    data = b""
    for block in range(DEPTH):
        for matrix in MATRICES[kind]:
            shape = (DIM, CHANNELS) if matrix.endswith("down") else (CHANNELS, DIM)
            stored, weights[f"adapter.blocks.{block}.{matrix}.weight"] = record(*shape, random)
            data += stored
    if head_bits == 1:
        stored, weights["head.weight"] = record(CLASSES, CHANNELS, random)
        data += stored
    else:
        for name, size in (("head.weight", (CLASSES, CHANNELS)), ("head.bias", (CLASSES,))):
            values = random.normal(0, 0.1, size).astype("<f4")
            weights[name] = torch.from_numpy(values)
            data += values.tobytes()
    path.write_bytes(data)
    return weights


def save_small_backbone(path: Path) -> Path:
    save_backbone(path, small_backbone())
    return path


def options(kind: str, head_bits: int) -> list[str]:
    told = {"adapter": kind, "dim": DIM, "scale": 0.5, "head-bits": head_bits, "classes": CLASSES}
    return [text for name, value in told.items() for text in (f"--{name}", str(value))]
