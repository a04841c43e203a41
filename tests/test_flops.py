"""Multiply-accumulates are those of formulas and of the paper, and the page that compares them is current."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small import ADAPTFORMER, ARCHITECTURE, ARGUMENTS, BDM, small_backbone, small_header

from benchmarks.paper_numbers import agrees, markdown
from fpet.adapters import ADAPTERS
from fpet.backbone import create_backbone
from fpet.cli import main
from fpet.errors import UnsupportedError
from fpet.flops import Macs, flops, macs, outline
from fpet.header import Method
from fpet.reducers import REDUCERS
from fpet.task import new_model, save_task
from fpet.tokens import Geometry

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/paper-numbers.md"
NONE = Method("none")
CLASSES = 100
# GMACs by the paper's convention: computed with a calculator from the shapes, and where the paper prints them, its own.
EXPECTED = [
    ("AdaptFormer, dim 8", 17.611, 13.455),
    ("AdaptFormer, dim 1", 17.586, None),
    ("Bi-AdaptFormer, dim 32", 17.70, 13.52),
    ("VPT-Deep, 10 prompts", 18.51, None),
    ("FacT-TT, rank 8", 17.817, None),
    ("LoRA, Bi-LoRA, RepAdapter folded", 17.582, 13.433),
    ("ViT-S, Bi-LoRA, dim 32", 4.72, 3.61),
    ("ViT-L, LoRA, dim 8", 61.76, 46.68),
    ("DeiT-B, LoRA folded", 17.67, 13.52),
    ("DeiT-B, AdaptFormer, dim 8", 17.70, 13.55),
]


@pytest.fixture(scope="module")
def page() -> str:
    """Counted anew."""
    return markdown()


def cells(page: str, name: str) -> list[str]:
    [line] = [line for line in page.splitlines() if line.startswith(f"| {name} |") and line.count("|") == 8]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_committed_comparison_is_what_its_command_prints(page: str) -> None:
    assert PAGE.read_text() == page + "\n"


@pytest.mark.parametrize(("name", "full", "reduced"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_the_paper_s_convention_is_met(page: str, name: str, full: float, reduced: float | None) -> None:
    _, counted, _, counted_reduced, *_ = cells(page, name)
    assert float(counted) == pytest.approx(full, abs=0.01)
    if reduced is not None:
        assert float(counted_reduced) == pytest.approx(reduced, abs=0.01)


@pytest.mark.parametrize(("block", "gmacs"), [(6, 13.455), (4, 11.97), (2, 10.49), (1, 9.75), (0, 9.01)])
def test_the_paper_s_convention_is_met_at_every_block(page: str, block: int, gmacs: float) -> None:
    [line] = [line for line in page.splitlines() if line.startswith(f"| {block} | ")]
    assert float(line.split("|")[2]) == pytest.approx(gmacs, abs=0.01)


def test_every_disagreement_has_its_reason(page: str) -> None:
    for line in page.splitlines():
        if "| no |" in line:
            assert line.split("|")[-2].strip(), line


def test_a_count_agrees_if_it_rounds_to_the_printed_digits() -> None:
    assert agrees(13.4547, "13.45")
    assert agrees(13.4547, "13.5")
    assert not agrees(13.4329, "13.3")
    assert agrees(0, "0")


def by_hand(geometry: Geometry, lengths: list[tuple[int, int]], a_and_b: int = 0) -> Macs:
    """From the shapes: tokens at the attention and at the MLP of each block, and sources times targets of a merge."""
    patches, width = geometry.grid[0] * geometry.grid[1], geometry.embed_dim
    attending, passing = (sum(counts) for counts in zip(*lengths, strict=True))
    matching = a_and_b * (geometry.head_dim + width) + 2 * 32 * geometry.head_dim * lengths[0][0]
    return Macs(
        patch_embedding=patches * geometry.patch_dim * width,
        attention_linear=attending * 4 * width**2,
        attention_products=sum(2 * before**2 * width for before, _ in lengths),
        mlp=passing * 2 * width * geometry.mlp_dim,
        norms=5 * width * (attending + passing + lengths[-1][1]),
        head=width * CLASSES,
        reducer=matching if a_and_b else 0,
        adapter=0,
    )


def test_every_part_of_vit_base_is_as_by_hand() -> None:
    backbone = outline("vit_base_patch16_224", {})
    counted = flops(backbone, NONE, Method("bdm", {"block": 6}), classes=CLASSES)
    assert counted.full == by_hand(backbone.geometry, [(197, 197)] * 12)
    assert counted.reduced == by_hand(backbone.geometry, [(197, 197)] * 6 + [(197, 99)] + [(99, 99)] * 5, 98 * 98)
    assert (counted.tokens_in, counted.tokens_out) == (197, 99)
    assert counted.full.total - counted.full.norms - counted.full.head == pytest.approx(17.563e9, abs=1e6)
    assert counted.reduced.total - counted.reduced.norms - counted.reduced.head == pytest.approx(13.418e9, abs=1e6)
    assert counted.speed_up == pytest.approx(1.309, abs=1e-3)
    assert counted.saving == pytest.approx(0.236, abs=1e-3)


def test_a_model_in_half_precision_costs_as_much() -> None:
    counted = []
    for dtype in (torch.float32, torch.bfloat16):
        backbone = create_backbone(ARCHITECTURE, ARGUMENTS)
        backbone.move("cpu", dtype)
        counted.append(flops(backbone, Method("lora"), Method("bdm", {"block": 1})))
    assert counted[0] == counted[1]


def test_an_adapter_costs_what_its_formula_costs() -> None:
    backbone = outline(ARCHITECTURE, ARGUMENTS)  # 17 tokens of 24 channels, 2 blocks
    counted = flops(backbone, Method("adaptformer", {"dim": 4}), Method("bdm", {"block": 1}))
    assert counted.full.adapter == 2 * 4 * 24 * (17 + 17)
    assert counted.reduced.adapter == 2 * 4 * 24 * (17 + 9)
    prompted = flops(backbone, Method("vpt-deep", {"prompts": 3}), NONE)
    assert prompted.tokens_in == 20
    longer, bare = (by_hand(backbone.geometry, [(length, length)] * 2) for length in (20, 17))
    assert prompted.full.adapter == longer.total - bare.total


def test_the_page_of_the_paper_is_not_what_its_help_prints() -> None:
    command = [sys.executable, "-m", "benchmarks.paper_numbers", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.startswith("usage: ")
    assert "# The numbers of the paper" not in said


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_adapter_is_counted_and_costs_nothing_once_folded(kind: str) -> None:
    backbone = outline(ARCHITECTURE, ARGUMENTS)
    assert macs(backbone, Method(kind), NONE) >= macs(backbone, NONE, NONE)
    if ADAPTERS[kind].foldable:
        assert flops(backbone, Method(kind), NONE, folded=True).full.adapter == 0
    else:
        with pytest.raises(UnsupportedError, match=f"{kind} does not fold"):
            macs(backbone, Method(kind), NONE, folded=True)


@pytest.mark.parametrize("kind", [kind for kind in REDUCERS if kind not in ("none", "ltmp")])
def test_every_reduction_of_fixed_length_is_counted(kind: str) -> None:
    backbone = outline(ARCHITECTURE, ARGUMENTS)
    reducer = Method(kind, {"r": 2} if kind == "tome" else {"block": 0})
    counted = flops(backbone, Method("lora"), reducer)
    assert counted.full.reducer == 0
    assert (counted.reduced.reducer > 0) == (not kind.endswith("pool"))  # which takes no product
    assert counted.reduced.mlp < counted.full.mlp
    assert counted.reduced.total == macs(backbone, Method("lora"), reducer)


def test_counting_draws_no_random_numbers_of_the_callers() -> None:
    before = torch.random.get_rng_state()
    macs(small_backbone(), ADAPTFORMER, BDM)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_reduction_whose_length_depends_on_the_image_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="LTMP lets each image decide"):
        macs(outline(ARCHITECTURE, ARGUMENTS), NONE, Method("ltmp"))


def test_the_command_prints_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["flops", "--architecture", "vit_tiny_patch16_224", "--adapter-arguments", "dim=4"]
    assert main(command) == 0
    heading, *rows, model, bound = capsys.readouterr().out.splitlines()
    assert heading.split() == ["part", "full", "reduced", "saving"]
    assert [row.split()[0] for row in rows] == [*(field.name for field in dataclasses.fields(Macs)), "total"]
    assert model == "GMACs an image of vit_tiny_patch16_224 with adaptformer and bdm (197 -> 99 tokens)"
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["adapter"] == {"kind": "adaptformer", "arguments": {"dim": 4}}
    assert report["reducer"] == {"kind": "bdm", "arguments": {"block": 6}}
    assert report["full"]["total"] == sum(value for part, value in report["full"].items() if part != "total")
    assert report["speed_up"] == report["full"]["total"] / report["reduced"]["total"]
    assert bound == f"ideal speed-up {report['speed_up']:.3f}"


def test_a_task_is_counted_with_its_own_methods_unless_others_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backbone, path = small_backbone(), tmp_path / "digits.safetensors"
    header = small_header(backbone, Method("lora", {"dim": 2}))
    save_task(path, header, new_model(header, backbone))
    assert main(["flops", "--task", str(path), "--json", "--folded"]) == 0
    own = json.loads(capsys.readouterr().out)
    assert (own["adapter"]["arguments"]["dim"], own["reducer"]["kind"], own["tokens_out"]) == (2, "bdm", 9)
    assert own["full"]["head"] == 24 * 10
    assert own["full"]["adapter"] == 0
    assert main(["flops", "--task", str(path), "--json", "--reducer", "tome", "--reducer-arguments", "r=1"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert other["adapter"] == own["adapter"]
    assert other["reducer"] == {"kind": "tome", "arguments": {"r": 1}}
    assert other["full"]["adapter"] == 2 * 17 * 4 * 2 * 24


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--architecture", "vit_no_such"], "vit_no_such"),
        (["--architecture", "vit_tiny_patch16_224", "--reducer-arguments", "block=12"], "block = 12"),
        (["--architecture", "vit_tiny_patch16_224", "--adapter-arguments", "rank=8"], "no argument 'rank'"),
        (["--architecture", "vit_tiny_patch16_224", "--adapter-arguments", "dropout=2"], "dropout = 2 make no model"),
        (["--architecture", "vit_tiny_patch16_224", "--adapter-arguments", f"dim={10**18}"], "000 make no model"),
        (["--architecture", "vit_tiny_patch16_224", "--folded"], "adaptformer does not fold: it does more"),
        (["--architecture", "vit_tiny_patch16_224", "--folded", "--adapter", "vpt-deep"], "its prompts are tokens"),
        (["--architecture", "vit_tiny_patch16_224", "--reducer", "ltmp"], "LTMP lets each image decide"),
        (["--task", "nothing"], "no embedded task 'nothing'"),
        (["--task", "digits", "--architecture-arguments", "img_size=32"], "--architecture-arguments"),
    ],
)
def test_wrong_input_is_one_line(wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flops", *wrong]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fpet: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert captured.out == ""
