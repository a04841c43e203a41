"""Layers with reordered weights answer as they did, to the last bit, and hold what they say as long as it is needed."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from serving import Files, serving, small_settings, write_task
from small import BDM, small_backbone, small_family, small_header
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from fpet.backbone import create_backbone
from fpet.folding import fold
from fpet.header import Method
from fpet.inference import reordered
from fpet.inference.programs import Batch, Program
from fpet.inference.reordered import reorder, reordered_bytes, with_reordered

pytestmark = pytest.mark.usefixtures("one_thread")

# torch has oneDNN multiply in bfloat16 then, and so the trial gives the same.
BFLOAT16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bfloat16 that oneDNN uses"
)
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
LORA, LTMP = Method("lora", {"dim": 4}), Method("ltmp", {"target": 0.5})


def names_of_reordered(module: nn.Module) -> list[str]:
    return [name for name, _ in with_reordered(module).named_parameters() if name.endswith("reordered")]


@BOTH
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
@torch.inference_mode()
def test_a_layer_answers_as_before(dtype: torch.dtype, *, bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(192, 768, bias=bias), nn.GELU(), nn.Linear(768, 192, bias=bias)).to(dtype)
    reorder(layers)
    other = with_reordered(layers)
    traced = torch.jit.trace(other, torch.randn((2, 3, 192), generator=generator).to(dtype), check_trace=False)
    for shape in ((1, 192), (7, 192), (1, 1, 192), (2, 197, 192), (16, 99, 192)):
        x = torch.randn(shape, generator=generator).to(dtype)
        for each in (other, traced):
            assert torch.equal(each(x), layers(x))
            lying_otherwise = x.mT.contiguous().mT  # for which torch rounds once more
            torch.testing.assert_close(each(lying_otherwise), layers(x), rtol=5e-2, atol=5e-2)


@BFLOAT16
def test_in_bfloat16_layers_are_reordered_where_onednn_can() -> None:
    """As tests are about nothing where they are not."""
    layer = nn.Linear(192, 768).bfloat16()
    reorder(layer)
    assert names_of_reordered(layer) == ["reordered"]
    assert reordered_bytes(layer) == layer.weight.nbytes


@pytest.mark.parametrize(
    "layer", [nn.Linear(8, 8).double(), nn.Linear(8, 8, device="meta"), nn.Conv2d(3, 8, 2), nn.LayerNorm(8)], ids=str
)
def test_layers_that_cannot_be_reordered_stay_as_they_are(layer: nn.Module) -> None:
    reorder(layer)
    assert with_reordered(layer) is layer
    assert reordered_bytes(layer) == 0


def test_layers_whose_reordered_product_differs_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.functional, "linear", lambda x, weight: x @ weight.mT + 1e-3)
    layer = nn.Linear(192, 768).bfloat16()
    reorder(layer)
    assert with_reordered(layer) is layer


@BFLOAT16
def test_the_backbone_itself_stays_as_it_is() -> None:
    backbone = small_backbone()
    backbone.vit.bfloat16()
    before = {name: id(value) for name, value in backbone.vit.state_dict(keep_vars=True).items()}
    blocks: Any = backbone.vit.blocks
    reorder(backbone.vit)
    assert len(names_of_reordered(blocks[0])) == 4
    assert {name: id(value) for name, value in backbone.vit.state_dict(keep_vars=True).items()} == before
    assert {type(module) for module in blocks.modules() if isinstance(module, nn.Linear)} == {nn.Linear}


@BFLOAT16
def test_what_is_held_goes_with_the_weights() -> None:
    gc.collect()
    before = len(reordered._reordered)
    backbone = small_backbone()
    backbone.vit.bfloat16()
    reorder(backbone.vit)
    made = {id(value) for value in reordered._reordered.values()}
    reorder(backbone.vit)
    assert {id(value) for value in reordered._reordered.values()} == made  # once for all who ask
    assert len(made) == before + 8
    del backbone
    gc.collect()
    assert len(reordered._reordered) == before


@BFLOAT16
def test_a_folded_model_shares_what_folding_left_alone(tmp_path: Path) -> None:
    made = small_family(tmp_path, LORA, BDM, dtype=torch.bfloat16)[0]
    reorder(made.backbone.vit)
    folded = fold(made)
    blocks: Any = folded.vit.blocks
    assert names_of_reordered(blocks[0]) == [f"{name}.reordered" for name in ("attn.proj", "mlp.fc1", "mlp.fc2")]
    images = torch.randn((3, 3, 16, 16), generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.inference_mode():
        answers = folded.features(images)
        program = Program(folded, (), [(Batch(images), answers)])
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            assert torch.equal(program.features(Batch(images)), answers)
    products = [event for event in profiled.key_averages() if event.key == "mkldnn::_linear_pointwise"]
    assert sum(event.count for event in products) == 2 * 3  # in each of two blocks


@BOTH
def test_blocks_may_share_a_layer(dtype: torch.dtype) -> None:
    backbone = create_backbone(small_backbone().architecture, small_backbone().arguments)
    vit: Any = backbone.vit.to(dtype)
    vit.blocks[1].mlp.fc1 = vit.blocks[0].mlp.fc1
    reorder(vit)
    x = torch.randn((2, 5, 24), generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.inference_mode():
        for block in vit.blocks:
            other: Any = with_reordered(block)
            assert torch.equal(other(x), block(x))


@BFLOAT16
@pytest.mark.parametrize(
    ("reducer", "expected"), [(BDM, True), (Method("ltmp", {"target": 0.5}), False)], ids=["bdm", "ltmp"]
)
def test_the_service_counts_their_bytes_where_programs_use_them(
    small_files: Files, tmp_path: Path, reducer: Method, *, expected: bool
) -> None:
    backbone = small_backbone()
    write_task(tmp_path / "digits.safetensors", small_header(backbone, LORA, reducer), backbone)
    settings = small_settings(Files(small_files.backbone, tmp_path), dtype="bfloat16")
    with serving(settings) as service:
        size: Tensor | float = service.metric("resident_bytes", kind="reordered")
        assert size == reordered_bytes(service.runtime.engine.backbone.vit)
        assert (size > 0) is expected
