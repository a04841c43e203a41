"""The methods against recorded outputs of their published reference code (float32, evaluation mode)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone
from fpet.linear import LowBitLinear
from fpet.reducers import build_reducer
from fpet.reducers.matching import assign, cosine_scores, merge
from fpet.safetensors_files import read_safetensors
from fpet.tokens import Layout, Tokens
from fpet.vit import AdaptedViT

GOLDEN = Path(os.environ.get("FPET_GOLDEN_DIR", Path(__file__).parent / "data" / "golden"))
CASES = json.loads((GOLDEN / "merge.json").read_text())
MODELS = json.loads((GOLDEN / "models.json").read_text())
RENAMED = (
    ("attn.lora_q.", "q."),
    ("attn.lora_v.", "v."),
    ("adapter_mlp.adapter_", ""),
    ("adapter_down", "down"),
    ("adapter_up", "up"),
    ("adapter_attn.conv_A.", "attn.a_"),
    ("adapter_attn.conv_B.", "attn.b_"),
    ("adapter_mlp.conv_A.", "mlp.a_"),
    ("adapter_mlp.conv_B.", "mlp.b_"),
)


def tensors(name: str, prefix: str) -> dict[str, Tensor]:
    _, found = read_safetensors(GOLDEN / f"{name}.safetensors", FileNotFoundError)  # type: ignore[arg-type]
    return {key.removeprefix(prefix): value for key, value in found.items() if key.startswith(prefix)}


def our_name(name: str) -> str:
    if name.startswith("head."):
        return name
    if ".refinement." in name:
        return "reducer." + name.replace("refinement.adapter_", "refine.")
    for theirs, ours in RENAMED:
        name = name.replace(theirs, ours)
    return "adapter." + name


def flat(value: Tensor) -> Tensor:
    """Weights of 1x1 convolutions as matrices."""
    return value.squeeze(-1) if value.ndim == 3 else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_merging_matches_the_reference(case: dict[str, Any]) -> None:
    golden = tensors("merge", f"{case['name']}.")
    prefix = int(case["class_token"])
    rows, columns = case["grid"]
    layout = Layout(prefix, tuple((i, j) for i in range(rows) for j in range(columns)))
    a, b, _ = layout.checkerboard()
    a_index, b_index = torch.tensor(a), torch.tensor(b)

    scores = cosine_scores(golden["metric"], a_index, b_index)
    assignment = assign(scores, differentiable=False)
    x, size = merge(Tokens(golden["x"], golden.get("size_in")), assignment, a_index, b_index)

    raster = [-1] * prefix + [index - prefix for index in b]
    order = [raster.index(index) for index in golden["b_index"].tolist()]
    torch.testing.assert_close(x[:, order], golden["y"], rtol=0, atol=1e-5)
    assert size is not None
    torch.testing.assert_close(size[:, order], golden["size_out"], rtol=0, atol=1e-5)
    matched = (b_index - prefix)[assignment.argmax(dim=-1)]  # [B, |A|]
    a_order = [(a_index - prefix).tolist().index(index) for index in golden["a_index"].tolist()]
    assert torch.equal(matched[:, a_order], golden["match"].long())


def backbone_of(grid: str, image_size: int, patch_size: int) -> tuple[Backbone, dict[str, Tensor]]:
    state = tensors(f"backbone_{grid}", "")
    head = {key: state.pop(key) for key in ("head.weight", "head.bias")}
    weights = {key: value for key, value in state.items() if not key.startswith("input/") and key != "logits"}
    arguments = {
        "img_size": image_size,
        "patch_size": patch_size,
        "embed_dim": 96,
        "depth": 4,
        "num_heads": 3,
    }
    backbone = create_backbone("vit_tiny_patch16_224", arguments, weights)
    return backbone, {**state, **head}


def adapted(golden: dict[str, Any]) -> tuple[AdaptedViT, dict[str, Tensor]]:
    backbone, extra = backbone_of(golden["tag"].split("_")[0], golden["img"], golden["patch"])
    arguments = {"dim": golden["dim"], "scale": golden["scale"]}
    if golden["method"] != "repadapter":  # which has no low-bit variant
        arguments["bits"] = golden["bit"]
    adapter = build_adapter(golden["method"], backbone.geometry, arguments)
    kind, where = ("none", {}) if golden["layer"] is None else ("bdm", {"block": golden["layer"]})
    reducer = build_reducer(kind, backbone.geometry, Layout.of(backbone.geometry), where)
    head = LowBitLinear(backbone.geometry.embed_dim, 10, bias=True)
    model = AdaptedViT(backbone, adapter, reducer, head)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    parameters = tensors(f"model_{golden['tag']}", "param/")
    state = {our_name(name): flat(value) for name, value in parameters.items()}
    state |= {name: extra[name] for name in ("head.weight", "head.bias") if name not in state}
    model.trainable().load_state_dict(state, strict=True)
    return model, extra


@pytest.mark.parametrize("golden", MODELS, ids=lambda golden: str(golden["tag"]))
def test_models_match_the_reference(golden: dict[str, Any]) -> None:
    model, inputs = adapted(golden)
    expected = tensors(f"model_{golden['tag']}", "")

    with torch.inference_mode():
        logits = model.eval()(inputs["input/x"])
    torch.testing.assert_close(logits, expected["logits"], rtol=0, atol=1e-5)

    logits = model.train()(inputs["input/x"])  # dropout is off; training takes the differentiable matching
    torch.testing.assert_close(logits, expected["logits"], rtol=0, atol=1e-5)
    F.cross_entropy(logits, inputs["input/y"].long()).backward()
    parameters = dict(model.trainable().named_parameters())
    gradients = {name.removeprefix("grad/"): value for name, value in expected.items() if "grad/" in name}
    assert gradients
    for name, gradient in gradients.items():
        ours = parameters[our_name(name)].grad
        assert ours is not None, name
        error = (ours - flat(gradient)).norm() / gradient.norm()
        assert error < 1e-4, f"{name}: relative error {error:.2g}"
