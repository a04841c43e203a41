"""Checkpoints whose tensors are odd, or would unpack to far more than the file: one clear error, and little memory."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import original
import pytest
import torch
from small import ARCHITECTURE, ARGUMENTS, small_backbone
from torch import Tensor

from fpet.backbone import load_backbone
from fpet.errors import BackboneError

BOMB = 300 * 2**20  # bytes


DENSE = "is nested, quantised or sparse instead of dense"
ODD: dict[str, tuple[Callable[[], Tensor], str]] = {
    "sparse": (lambda: torch.zeros(24).to_sparse(), DENSE),
    "quantised": (lambda: torch.quantize_per_tensor(torch.zeros(24), 1.0, 0, torch.qint8), DENSE),
    "nested": (lambda: torch.nested.nested_tensor([torch.zeros(3), torch.zeros(21)]), DENSE),
    "on the meta device": (lambda: torch.zeros(24, device="meta"), "but not as many values"),
    "repeated": (lambda: torch.zeros(1).expand(10**12), "but not as many values"),
}


@pytest.mark.filterwarnings("default")  # torch has some to say of such tensors
@pytest.mark.parametrize("name", ["norm.bias", "pos_embed", "extra"])
@pytest.mark.parametrize("kind", ODD)
def test_a_tensor_that_does_not_hold_its_values_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    make, message = ODD[kind]
    path = tmp_path / "odd.pth"
    torch.save({**small_backbone().vit.state_dict(), name: make()}, path)
    with pytest.raises(BackboneError, match=message) as refusal:
        load_backbone(path, ARCHITECTURE, ARGUMENTS)
    assert str(refusal.value).startswith(f"{path}: {name!r} ")


@pytest.mark.parametrize(
    ("nests", "keys"),
    [
        (("net",), "'net', 'epoch', 'optimizer', 'args', 'rng', and 1 more"),
        (("state_dict", "net"), "'net', 'epoch', 'optimizer', 'args', 'rng', and 1 more"),
    ],
)
def test_weights_under_an_unknown_key_are_refused_saying_which_are_known(
    nests: tuple[str, ...], keys: str, tmp_path: Path
) -> None:
    path = tmp_path / "nested.pth"
    *known, unknown = nests
    others = {"epoch": 3, "optimizer": {}, "args": {}, "rng": [], "best": 0.5}
    content: Any = {unknown: small_backbone().vit.state_dict(), **others}
    for name in reversed(known):
        content = {name: content}
    torch.save(content, path)
    with pytest.raises(BackboneError) as refusal:
        load_backbone(path, ARCHITECTURE, ARGUMENTS)
    found = f"{path}: the torch checkpoint holds a OrderedDict under 'net' among the weights; its keys are {keys}; "
    read = "weights are read if they lie at the top or under state_dict_ema, model_ema, state_dict, model, teacher or "
    assert str(refusal.value) == f"{found}{read}student"


BLOCK = "Transformer/encoderblock_1"
ATTENTION = f"{BLOCK}/MultiHeadDotProductAttention_1"
SHAPES: list[tuple[str, Any, str]] = [
    (f"{BLOCK}/MlpBlock_3/Dense_0/kernel", np.zeros(24, np.float32), r"has shape \[24\], which is of no kernel"),
    ("embedding/kernel", np.zeros((), np.float32), r"has shape \[\], which is of no kernel"),
    (f"{ATTENTION}/value/kernel", np.zeros((23, 3, 8), np.float32), "another shape or type than the queries'"),
    (f"{ATTENTION}/key/kernel", np.zeros((24, 3, 8), np.uint16), "another shape or type than the queries'"),
    (f"{ATTENTION}/key/bias", np.zeros((3, 7), np.float32), "another shape or type than the queries'"),
    (f"{ATTENTION}/query/kernel", np.zeros((2, 24, 3, 8), np.float32), "which is not of 3 heads"),
    (f"{ATTENTION}/query/bias", np.zeros(24, np.float32), "which is not of 3 heads"),
]


@pytest.mark.parametrize(("name", "value", "message"), SHAPES)
def test_an_array_of_an_odd_shape_is_refused_by_name(name: str, value: Any, message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "ViT.npz", **{**original.google(small_backbone().vit), name: value})
    with pytest.raises(BackboneError, match=message) as refusal:
        load_backbone(tmp_path / "ViT.npz", ARCHITECTURE, ARGUMENTS)
    assert repr(name) in str(refusal.value)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("member", ["embedding/kernel.npy", "archive/data/0"])
def test_an_archive_that_unpacks_to_far_more_is_refused_unread(member: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(member, "w") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (BOMB // 4,)}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(BOMB // 2**20):
            file.write(bytes(2**20))
    with pytest.raises(BackboneError, match=r"holds \d+, more than 32 times as many") as refusal:
        load_backbone(path, ARCHITECTURE, ARGUMENTS)
    assert str(refusal.value).startswith(f"{path}: the archive of ")


def test_a_compressed_archive_of_weights_is_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "ViT.npz", **original.google(small_backbone().vit))
    assert load_backbone(tmp_path / "ViT.npz", ARCHITECTURE, ARGUMENTS).fingerprint == small_backbone().fingerprint
