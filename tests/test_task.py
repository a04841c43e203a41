"""Task files: what is saved is what is served, and a damaged file is refused naming file and key."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from small import perturb
from torch import Tensor

from fpet.adapters import ADAPTERS
from fpet.backbone import Backbone, create_backbone
from fpet.errors import TaskError
from fpet.header import BackboneRef, HeadSpec, Method, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.registry import completed
from fpet.safetensors_files import read_safetensors
from fpet.task import Task, new_model, save_task

SMALL: dict[str, object] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
METHODS = [
    Method("none"),
    *(Method(kind, {"dim": 4, "bits": bits}) for kind in ("lora", "adaptformer") for bits in (32, 8, 4, 2, 1)),
]
INFINITE = "1e999"  # a JSON number
REDUCTIONS = [Method("none"), Method("bdm", {"block": 1, "dim": 8})]


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    return create_backbone("vit_tiny_patch16_224", SMALL)


def header_of(backbone: Backbone, **changes: Any) -> TaskHeader:
    fields: dict[str, Any] = {
        "name": "fruit",
        "backbone": BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
        "adapter": Method("lora", {"dim": 4, "bits": 1}),
        "reducer": Method("bdm", {"block": 1, "dim": 8}),
        "labels": ("apple", "fig", "Äpfel"),
        "preprocessing": Preprocessing((32, 32)),
        "provenance": {"seed": 0},
    }
    return TaskHeader(**(fields | changes))


def saved(path: Path, backbone: Backbone, **changes: Any) -> Path:
    header = header_of(backbone, **changes)
    torch.manual_seed(1)
    save_task(path, header, new_model(header, backbone))
    return path


@pytest.mark.parametrize("reducer", REDUCTIONS, ids=lambda method: method.kind)
@pytest.mark.parametrize("adapter", METHODS, ids=lambda method: f"{method.kind}-{method.arguments.get('bits')}")
def test_a_saved_task_answers_as_the_trained_model(
    tmp_path: Path, backbone: Backbone, adapter: Method, reducer: Method
) -> None:
    header = header_of(backbone, adapter=adapter, reducer=reducer)
    torch.manual_seed(2)
    model = new_model(header, backbone)
    perturb(model.trainable(), 0.1)
    save_task(tmp_path / "fruit.safetensors", header, model)
    task = Task.load(tmp_path / "fruit.safetensors")
    methods = {"adapter": completed(ADAPTERS, adapter), "reducer": completed(REDUCERS, reducer)}
    assert task.header == dataclasses.replace(header, **methods)  # it does not depend on what defaults will be
    images = torch.randn(2, 3, 32, 32)
    state = torch.get_rng_state()
    built = task.build(backbone)
    assert torch.equal(torch.get_rng_state(), state)  # nothing of it is drawn
    assert not any(parameter.requires_grad for parameter in built.parameters())
    with torch.inference_mode():
        torch.testing.assert_close(built(images), model.eval()(images), rtol=0, atol=1e-5)


def test_a_quantised_head_is_stored_packed(tmp_path: Path, backbone: Backbone) -> None:
    path = saved(tmp_path / "fruit.safetensors", backbone, head=HeadSpec(bits=1, bias=False))
    assert Task.load(path).tensors["head.weight.codes"].shape == (9,)
    Task.load(path).build(backbone)


def test_one_bit_weights_take_an_eighth_of_a_byte(tmp_path: Path, backbone: Backbone) -> None:
    stored = Task.load(saved(tmp_path / "fruit.safetensors", backbone)).tensors
    codes = sum(t.numel() for name, t in stored.items() if name.startswith("adapter.") and name.endswith(".codes"))
    assert codes == 2 * 4 * (24 * 4) // 8


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Tensor]], None]) -> None:
    metadata, stored = read_safetensors(path, TaskError)
    header = json.loads(metadata["fpet"])
    change(header, stored)
    text = json.dumps(header).replace(f'"{INFINITE}"', INFINITE)
    safetensors.torch.save_file(stored, path, {"fpet": text})


def put(path: str, value: object) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    """A change of one field of the header."""

    def change(header: dict[str, Any], _: dict[str, Tensor]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            header = header[parent]
        header[last] = value

    return change


def take(name: str) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(header: dict[str, Any], stored: dict[str, Tensor]) -> None:
        (stored if name in stored else header).pop(name)

    return change


def store(name: str, value: Tensor) -> Callable[[dict[str, Any], dict[str, Tensor]], None]:
    def change(_: dict[str, Any], stored: dict[str, Tensor]) -> None:
        stored[name] = value

    return change


CODES = "adapter.blocks.0.q.down.weight.codes"
DAMAGES = {
    "missing tensor": (take(CODES), CODES),
    "missing head": (take("head.weight"), "head.weight"),
    "extra tensor": (store("adapter.extra", torch.zeros(2)), "adapter.extra"),
    "misshapen tensor": (store(CODES, torch.zeros(3, dtype=torch.uint8)), CODES),
    "wrong dtype": (store(CODES, torch.zeros(12)), CODES),
    "non-finite tensor": (store("head.bias", torch.full((3,), torch.nan)), "head.bias"),
    "unknown adapter": (put("adapter.kind", "magic"), "'magic'"),
    "unknown reducer": (put("reducer.kind", "magic"), "'magic'"),
    "unknown adapter argument": (put("adapter.arguments.width", 4), "'width'"),
    "wrong adapter argument": (put("adapter.arguments.dim", "4"), "dim = '4'"),
    "block out of range": (put("reducer.arguments.block", 2), "block = 2"),
    "unknown field": (put("licence", "MIT"), "'licence'"),
    "unknown nested field": (put("preprocessing.crop", 1), "header.preprocessing has an unknown field 'crop'"),
    "missing field": (take("labels"), "'labels'"),
    "wrong type": (put("preprocessing.size", [32]), "header.preprocessing.size"),
    "bool for a number": (put("head.bits", True), "header.head.bits"),
    "wrong interpolation": (put("preprocessing.interpolation", "nearest"), "'nearest'"),
    "other format": (put("format", 2), "format 2"),
    "other format and field": (lambda header, _: header.update(format=2, novel=1), "format 2 is not the known"),
    "label count": (put("labels", ["apple", "fig"]), "2 labels but 'head.bias' has 3 rows"),
    "single number for a bias": (store("head.bias", torch.tensor(1.0)), "'head.bias' is a single number"),
    "single number for a weight": (store("head.weight", torch.tensor(1.0)), "'head.weight' is a single number"),
    "8-bit floats": (store("head.bias", torch.zeros(3).to(torch.float8_e4m3fn)), "'head.bias' is float8_e4m3fn"),
    "complex numbers": (store("head.bias", torch.zeros(3).to(torch.complex64)), "'head.bias' is complex64"),
    "infinite argument": (put("adapter.arguments.scale", INFINITE), "header.adapter.arguments.scale is not finite"),
    "argument beyond floats": (put("adapter.arguments.scale", 10**400), "header.adapter.arguments.scale is not finite"),
    "nested infinity": (put("reducer.arguments.block", [0, {"a": INFINITE}]), "reducer.arguments.block[1].a is not"),
    "infinite provenance": (put("provenance.seed", INFINITE), "header.provenance.seed is not finite"),
    "half a character": (put("labels", ["apple", "fig", "\ud800"]), "header.labels[2] is no text in Unicode"),
    "half a character in a name": (put("provenance", {"\udfff": 1}), "of a field of header.provenance is no text"),
    "endless nesting": (put("provenance.seed", json.loads("[" * 40 + "]" * 40)), "lies too deep"),
    "std beyond floats": (put("preprocessing.std", [10**400, 1, 1]), "header.preprocessing.std[0] is not finite"),
    "std of zero in float32": (put("preprocessing.std", [1e-300] * 3), "too large or too small for float32"),
    "std that makes infinities": (put("preprocessing.std", [1e-40] * 3), "too large or too small for float32"),
    "mean beyond float32": (put("preprocessing.mean", [1e300] * 3), "too large or too small for float32"),
    "label twice": (put("labels", ["apple", "fig", "fig"]), "label twice"),
    "name that leaves the folder": (put("name", "../fruit"), "'../fruit'"),
    "other backbone": (put("backbone.fingerprint", "0" * 64), "belongs to the backbone"),
    "backbone made otherwise": (put("backbone.arguments.global_pool", "avg"), "'global_pool': 'avg'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_naming_file_and_key(tmp_path: Path, backbone: Backbone, damage: str) -> None:
    path = saved(tmp_path / "fruit.safetensors", backbone)
    change, named = DAMAGES[damage]
    rewrite(path, change)
    with pytest.raises(TaskError) as refusal:
        Task.load(path).build(backbone)
    assert str(path) in str(refusal.value)
    assert named in str(refusal.value)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"head.weight": [0.0]}))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_header(path: Path) -> None:
    safetensors.torch.save_file({"head.weight": torch.zeros(3, 24)}, path)


def with_a_header_that_is_not_json(path: Path) -> None:
    safetensors.torch.save_file({"head.weight": torch.zeros(3, 24)}, path, {"fpet": "{"})


def with_a_header_that_is_nested_without_end(path: Path) -> None:
    safetensors.torch.save_file({"head.weight": torch.zeros(3, 24)}, path, {"fpet": "[" * 100_000})


@pytest.mark.parametrize(
    "damage",
    [
        truncated,
        pickled,
        emptied,
        without_header,
        with_a_header_that_is_not_json,
        with_a_header_that_is_nested_without_end,
        Path.unlink,
    ],
)
def test_a_file_that_is_no_task_is_refused(tmp_path: Path, backbone: Backbone, damage: Callable[[Path], None]) -> None:
    path = saved(tmp_path / "fruit.safetensors", backbone)
    damage(path)
    with pytest.raises(TaskError, match=r"fruit\.safetensors"):
        Task.load(path)


def test_every_header_that_is_no_tasks_is_a_value_error(backbone: Backbone) -> None:
    with pytest.raises(ValueError, match="the header is nested too deeply"):
        TaskHeader.from_json("[" * 100_000)
    many = ", ".join(f'"{i}": 0' for i in (*range(100_000), 99_999))  # not to be compared with each other
    with pytest.raises(ValueError, match="the header is not JSON: the field '99999' is there twice"):
        TaskHeader.from_json(f"{{{many}}}")
    with pytest.raises(ValueError, match="the header is not JSON: the field 'labels' is there twice"):
        TaskHeader.from_json(header_of(backbone).to_json().replace("{", '{"labels": ["a", "b"], ', 1))
    with pytest.raises(ValueError, match="interpolation = 'nearest'"):
        TaskHeader.from_json(header_of(backbone).to_json().replace("bicubic", "nearest"))


def test_nothing_is_left_behind_when_saving_fails(tmp_path: Path, backbone: Backbone) -> None:
    path = saved(tmp_path / "fruit.safetensors", backbone)
    before = path.read_bytes()
    header = header_of(backbone)
    model = new_model(header, backbone)
    with torch.no_grad():
        next(model.head.parameters()).fill_(torch.inf)
    with pytest.raises(TaskError, match="not finite"):
        save_task(path, header, model)
    with pytest.raises(TaskError, match="cannot be written"):
        save_task(path / "below-a-file.safetensors", header, new_model(header, backbone))
    unending = header_of(backbone, provenance={"losses": [0.5, torch.nan]})
    with pytest.raises(TaskError, match=r"fruit\.safetensors: header\.provenance\.losses\[1\] is not finite"):
        save_task(path, unending, new_model(header, backbone))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["fruit.safetensors"]
