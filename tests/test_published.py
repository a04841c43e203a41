"""The published Bi-LoRA and Bi-AdaptFormer files: read exactly, and given back byte for byte."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from published_files import CLASSES, DIM, MATRICES, options, save_small_backbone, written
from small import small_backbone

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.cli import main
from fpet.convert.catalog import Published, look_up
from fpet.convert.published import decode, published_bytes
from fpet.header import BackboneRef, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.quantize import Packed, unpack
from fpet.registry import completed
from fpet.task import Task, new_model, save_task, save_tensors
from fpet.untrained import new_header

BESIDE = Path(__file__).parent.parent.parent / "shared" / "published-adapters"
FOLDER = Path(os.environ.get("FPET_PUBLISHED_DIR", BESIDE))
CATALOG = FOLDER / "catalog.json"
FILES = [entry["file"] for entry in json.loads(CATALOG.read_text())] if CATALOG.exists() else []
published = pytest.mark.skipif(not FILES, reason=f"no published adapters in {FOLDER}; set FPET_PUBLISHED_DIR")

VARIANTS = [(kind, head_bits) for kind in MATRICES for head_bits in (32, 1)]
IMAGES = torch.rand((2, 3, 16, 16), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def backbone(tmp_path: Path) -> Path:
    return save_small_backbone(tmp_path / "small.safetensors")


@pytest.mark.parametrize("kind", MATRICES)
def test_what_is_trained_with_a_head_of_one_bit_can_be_published(tmp_path: Path, kind: str) -> None:
    backbone, path = small_backbone(), tmp_path / "digits.safetensors"
    adapter = Method(kind, {"dim": DIM, "bits": 1})
    header = new_header("digits", ("a", "b"), backbone, adapter=adapter, reducer=Method("none"), head_bits=1)
    assert not header.head.bias
    save_task(path, header, new_model(header, backbone))
    task = Task.load(path)
    torch.testing.assert_close(decode(published_bytes(task, backbone), header, backbone), task.tensors, rtol=0, atol=0)


@pytest.mark.parametrize(("kind", "head_bits"), VARIANTS)
def test_a_file_becomes_a_task_and_the_same_file_again(
    tmp_path: Path, backbone: Path, kind: str, head_bits: int
) -> None:
    source, task, back = (tmp_path / name for name in ("kitti.bin", "kitti.safetensors", "back.bin"))
    weights = written(source, kind, head_bits)
    files = ["--backbone", str(backbone), "--output"]
    assert main(["convert", str(source), *files, str(task), *options(kind, head_bits)]) == 0
    loaded = Task.load(task)
    model = loaded.build(small_backbone())
    parameters = dict(model.trainable().named_parameters())
    assert parameters.keys() == weights.keys()
    for name, value in weights.items():
        torch.testing.assert_close(parameters[name], value, rtol=0, atol=1e-7)
    preprocessing = loaded.header.preprocessing
    assert preprocessing == Preprocessing((16, 16), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), "bicubic")
    assert loaded.header.labels == tuple("01234")
    assert loaded.header.adapter.arguments["scale"] == 0.5
    assert main(["convert", str(task), "--to", "published", *files, str(back)]) == 0
    assert back.read_bytes() == source.read_bytes()


def test_a_catalog_says_it_all_and_labels_have_names(tmp_path: Path, backbone: Path) -> None:
    source, labels, output = tmp_path / "bins" / "kitti.bin", tmp_path / "labels.txt", tmp_path / "kitti-4.safetensors"
    source.parent.mkdir()
    written(source, "lora", 1)
    labels.write_bytes(b"\xef\xbb\xbfa\r\nb\r\nc\r\nd\r\n\r\ne\r\n")  # as editors of Windows write it
    entry = {"file": "bins/kitti.bin", "method": "lora", "head_bits": 1, "bits": 1}
    catalog = tmp_path / "catalog.json"
    catalog.write_text(json.dumps([{**entry, "hidden_dim": DIM, "scale": 10, "num_classes": CLASSES}]))
    files = ["--backbone", str(backbone), "--output", str(output), "--labels", str(labels), "--catalog", str(catalog)]
    assert main(["convert", str(source), *files, "--reducer", "bsm"]) == 0
    task = Task.load(output)
    assert task.header.reducer == Method("bsm", {"block": 1})  # half-way, as in training
    assert (task.header.name, task.header.labels) == ("kitti-4", tuple("abcde"))
    assert task.header.adapter == completed(ADAPTERS, Method("lora", {"dim": DIM, "scale": 10.0, "bits": 1}))
    model = task.build(small_backbone())
    assert (model.tokens_in, model.tokens_out) == (17, 9)
    assert model(IMAGES).isfinite().all()


@pytest.fixture(scope="module")
def vit_base() -> Backbone:
    torch.manual_seed(0)
    return create_backbone("vit_base_patch16_224")


def header_of(entry: Published, backbone: Backbone) -> TaskHeader:
    assert entry.classes is not None
    return TaskHeader(
        name="published",
        backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        adapter=entry.adapter,
        reducer=Method("none"),
        labels=tuple(str(number) for number in range(entry.classes)),
        preprocessing=Preprocessing((224, 224), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
        head=entry.head,
    )


def converted(file: str, backbone: Backbone, output: Path) -> Task:
    """A published file as a task, by way of the task's file."""
    header = header_of(look_up(CATALOG, FOLDER / file), backbone)
    save_tensors(output, header, decode((FOLDER / file).read_bytes(), header, backbone), backbone)
    return Task.load(output)


@published
@pytest.mark.parametrize("file", FILES)
def test_a_published_file_comes_back_byte_for_byte(file: str, vit_base: Backbone, tmp_path: Path) -> None:
    task = converted(file, vit_base, tmp_path / "task.safetensors")
    assert published_bytes(task, vit_base) == (FOLDER / file).read_bytes()


# file, first bytes, ones in the first matrix, its mean and deviation, those of the second, its first weight
GOLDEN: list[tuple[str, str, int, list[float], list[float], float]] = [
    (
        "adaptformer/cifar-bit1-dim32.bin",
        "ef29e735",
        12_206,
        [0.00170851464, 0.0536494367],
        [0.00152082508, 0.0338576958],
        0.0378945,
    ),
    (
        "lora/svhn-bit1-dim1.bin",
        "06f572bd",
        374,
        [-0.00167768693, 0.0391825363],
        [5.01449867e-05, 0.0284686983],
        -0.0281059,
    ),
]


@published
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: str(golden[0]))
def test_published_files_decode_to_the_known_values(
    golden: tuple[str, str, int, list[float], list[float], float], vit_base: Backbone, tmp_path: Path
) -> None:
    file, start, ones, first, second, weight = golden
    task = converted(file, vit_base, tmp_path / "task.safetensors")
    names = [name.removesuffix(".codes") for name in task.tensors if name.endswith(".codes")]
    below = "" if file.startswith("adaptformer") else "q."
    down, up = (f"adapter.blocks.0.{below}{part}.weight" for part in ("down", "up"))
    assert {down, up} <= set(names)
    codes = task.tensors[f"{down}.codes"].numpy()
    assert codes[:4].tobytes().hex() == start
    assert int(np.unpackbits(codes).sum()) == ones
    assert task.tensors[f"{down}.stats"].tolist() == pytest.approx(first, rel=1e-7)
    assert task.tensors[f"{up}.stats"].tolist() == pytest.approx(second, rel=1e-7)
    matrix = unpack(
        Packed(task.tensors[f"{down}.codes"], task.tensors[f"{down}.stats"]), (8 * len(codes) // 768, 768), 1
    )
    assert matrix[0, 0].item() == pytest.approx(weight, rel=1e-5)
    signs = "".join("+" if bit else "-" for bit in np.unpackbits(codes[:1], bitorder="little"))
    assert ["+" if value > 0 else "-" for value in matrix[0, :8].tolist()] == list(signs)


@published
def test_the_head_decodes_to_the_known_values(vit_base: Backbone, tmp_path: Path) -> None:
    tensors = converted("adaptformer/cifar-bit1-dim32.bin", vit_base, tmp_path / "task.safetensors").tensors
    assert tensors["head.weight"][0, :3].tolist() == pytest.approx([0.09223016, -0.00122989, -0.0493651], abs=5e-9)
    assert tensors["head.bias"][:3].tolist() == pytest.approx([-0.03925956, -0.01229937, 0.00921334], abs=5e-9)


@published
@pytest.mark.parametrize("variant", ["adaptformer", "adaptformer-bihead", "lora", "lora-bihead"])
def test_a_published_task_classifies(variant: str, vit_base: Backbone, tmp_path: Path) -> None:
    task = converted(f"{variant}/cifar-bit1-dim32.bin", vit_base, tmp_path / "task.safetensors")
    images = torch.rand((2, 3, 224, 224), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        logits = task.build(vit_base)(images)
    assert logits.shape == (2, 100)
    assert logits.isfinite().all()
    assert logits.std(dim=0).max() > 0
