"""Which patches merged, against matching by hand, and the picture of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from PIL import Image
from small import ARCHITECTURE, ARGUMENTS, PUBLISHED_ODD, small_backbone, small_header
from torch import Tensor

from fpet.adapters import build_adapter
from fpet.backbone import Backbone, create_backbone, save_backbone
from fpet.block import attention
from fpet.cli import main
from fpet.errors import UnsupportedError
from fpet.groups import GONE, token_of_patch
from fpet.header import Method
from fpet.preprocess import Preprocessing
from fpet.reducers import REDUCERS
from fpet.reducers.base import BlockReducer, Reducer
from fpet.reducers.matching import cosine_scores
from fpet.task import new_model, save_task
from fpet.tokens import Layout, Tokens
from fpet.visualize import figure, in_patches, merged
from fpet.vit import AdaptedViT

pytestmark = pytest.mark.usefixtures("one_thread")

SAMPLES = sorted((Path(__file__).parent.parent / "weights/samples/fashion-mnist").iterdir())
IMAGES = torch.randn((3, 3, 16, 16), generator=torch.Generator().manual_seed(5))
ROWS = COLUMNS = 4
PATCHES = ROWS * COLUMNS


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(1)
    state = small_backbone().vit.state_dict()
    return create_backbone(
        ARCHITECTURE, ARGUMENTS, {name: value + 0.2 * torch.randn_like(value) for name, value in state.items()}
    )


def model_of(backbone: Backbone, reducer: Method, adapter: str = "none") -> AdaptedViT:
    torch.manual_seed(2)
    return new_model(small_header(backbone, Method(adapter), reducer), backbone).eval()


def with_block(backbone: Backbone, block: type[BlockReducer]) -> AdaptedViT:
    """A model whose first block reduces so, and whose second does nothing."""
    geometry = backbone.geometry
    reducer = Reducer(geometry, Layout.of(geometry), lambda i, here: block(here) if i == 0 else BlockReducer(here))
    return AdaptedViT(backbone, build_adapter("none", geometry, {}), reducer, torch.nn.Identity()).eval()


def keys_of_first_block(model: AdaptedViT) -> Tensor:
    block, site = model.vit.blocks[0], model.adapter.blocks[0]
    x = model.vit._pos_embed(model.vit.patch_embed(IMAGES))
    return attention(block.attn, site, block.norm1(x), None)[2]


def test_groups_are_those_of_matching_by_hand(backbone: Backbone) -> None:
    model = model_of(backbone, Method("bdm", {"block": 0, "refine": False}))
    even = [1 + i for i in range(PATCHES) if (i // COLUMNS + i % COLUMNS) % 2 == 0]
    odd = [1 + i for i in range(PATCHES) if (i // COLUMNS + i % COLUMNS) % 2 == 1]
    with torch.inference_mode():
        keys = keys_of_first_block(model).mean(dim=1)
        best = cosine_scores(keys, torch.tensor(even), torch.tensor(odd)).argmax(dim=-1)
    expected = torch.empty(3, 1 + PATCHES, dtype=torch.long)
    expected[:, odd] = torch.arange(1, 1 + len(odd))
    expected[:, even] = 1 + best
    found = token_of_patch(model, IMAGES)
    assert found.dtype == torch.int64
    assert torch.equal(found, expected[:, 1:].view(3, ROWS, COLUMNS))


def test_pooled_patches_are_pairs_in_a_row(backbone: Backbone) -> None:
    pairs = torch.tensor([[1, 1, 2, 2], [3, 3, 4, 4], [5, 5, 6, 6], [7, 7, 8, 8]])
    for kind in ("average-pool", "max-pool"):
        found = token_of_patch(model_of(backbone, Method(kind, {"block": 1})), IMAGES)
        assert torch.equal(found, pairs.expand(3, -1, -1)), kind


@pytest.mark.parametrize("adapter", ["lora", "vpt-deep"])
@pytest.mark.parametrize("kind", [kind for kind in REDUCERS if kind != "none"])
def test_groups_are_as_large_as_the_sizes_of_tokens(backbone: Backbone, kind: str, adapter: str) -> None:
    arguments = {"tome": {"r": 3}, "ltmp": {}, "max-pool": {"block": [0, 1]}, "bdm": {"block": [0, 1]}}
    model = model_of(backbone, Method(kind, arguments.get(kind, {"block": 0})), adapter)
    found = token_of_patch(model, IMAGES).flatten(1)
    with torch.inference_mode():
        _, size = model.tokens(IMAGES)
    assert size is not None
    assert found.min() >= model.tokens_in - PATCHES  # prefix tokens and prompts hold no patch
    counts = torch.stack([places.bincount(minlength=size.shape[1]) for places in found]).float()
    counts[:, : model.tokens_in - PATCHES] = 1
    torch.testing.assert_close(counts, size[..., 0])


def test_patches_that_no_token_holds_are_gone(backbone: Backbone) -> None:
    class Prune(BlockReducer):
        def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
            size = torch.ones(tokens.x.shape[0], 14, 1)
            size[:, -1] = 1e-10  # masked
            return Tokens(tokens.x[:, :14], size)

    found = token_of_patch(with_block(backbone, Prune), IMAGES).flatten(1)
    assert torch.equal(found[0], torch.tensor([*range(1, 13), *([GONE] * 4)]))


def test_a_patch_in_two_tokens_is_refused(backbone: Backbone) -> None:
    class Blur(BlockReducer):
        def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:  # noqa: ARG002
            return Tokens((tokens.x + tokens.x.roll(1, dims=1)) / 2, None)

    model = with_block(backbone, Blur)
    with pytest.raises(UnsupportedError, match="shares out patches"):
        token_of_patch(model, IMAGES)


def test_looking_leaves_the_model_as_it_was(backbone: Backbone) -> None:
    model = model_of(backbone, Method("bdm", {"block": 0}))
    with torch.inference_mode():
        before = model(IMAGES)
        token_of_patch(model, IMAGES)
        assert torch.equal(model(IMAGES), before)
    assert not any(block._forward_pre_hooks for block in model.reducer.blocks)


@pytest.mark.parametrize("training", [True, False])
def test_drawing_leaves_the_mode_of_the_model(backbone: Backbone, training: bool) -> None:
    model = model_of(backbone, Method("bdm", {"block": 0})).train(training)
    figure("bdm", model, torch.zeros_like(IMAGES, dtype=torch.uint8), Preprocessing((16, 16)))
    modules = [*model.adapter.modules(), *model.reducer.modules(), *model.head.modules()]
    assert {part.training for part in modules} == {training}


def test_groups_have_their_mean_colour_and_a_line_between_them() -> None:
    image = torch.zeros(3, 2, 6, dtype=torch.uint8)
    image[0, :, 0:2], image[0, :, 2:4], image[2, :, 4:6] = 100, 200, 90
    drawn = merged(image, torch.tensor([[7, 7, GONE]]))
    k = drawn.shape[-1] // 6
    assert drawn.shape == (3, 2 * k, 6 * k)
    assert drawn[:, 0, [0, 2 * k, 4 * k - 2]].T.tolist() == [[150, 0, 0]] * 3
    line = drawn[:, 0, 4 * k - 1]
    assert line[0] == line[1] == line[2]
    assert drawn[:, 0, 4 * k].max() < 90
    assert drawn[:, -1, 0].tolist() == [150, 0, 0]


@pytest.fixture(scope="module")
def files(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A task that merges, and its backbone, as options of the command."""
    folder = tmp_path_factory.mktemp("visualize")
    save_backbone(folder / "backbone.safetensors", backbone)
    for kind, reducer in (("bdm", Method("bdm", {"block": 0})), ("none", Method("none"))):
        header = small_header(backbone, reducer=reducer)
        save_task(folder / f"{kind}.safetensors", header, new_model(header, backbone))
    return ["--backbone", str(folder / "backbone.safetensors"), "--task", str(folder / "bdm.safetensors")]


def test_the_command_draws_a_row_for_each_image(files: list[str], tmp_path: Path) -> None:
    sizes = []
    for samples in (SAMPLES[:1], SAMPLES[:3]):
        output = tmp_path / f"{len(samples)}.png"
        assert main(["visualize", *map(str, samples), *files, "--output", str(output)]) == 0
        with Image.open(output) as picture:
            picture.load()
            assert picture.format == "PNG"
            sizes.append(picture.size)
    (width, one), (same_width, three) = sizes
    assert width == same_width
    assert width > 3 * 448  # three panels of 16 pixels, enlarged 28 times
    assert one > 448
    assert three - one == pytest.approx(2 * one, abs=2 * 16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.png", "3.png"]


def test_the_picture_lies_in_the_working_folder_and_takes_no_others_place(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, here = tmp_path / "shoes", tmp_path / "here"
    for folder in (data, here):
        folder.mkdir()
    image = data / "shoe.png"
    image.write_bytes(SAMPLES[0].read_bytes())
    monkeypatch.chdir(here)
    assert main(["visualize", str(image), *files]) == 0
    assert capsys.readouterr().out.startswith("shoe.merged.png: ")
    (here / "shoe.merged.png").write_bytes(b"another")
    assert main(["visualize", str(image), *files]) == 2
    assert "shoe.merged.png: it is there already" in capsys.readouterr().err
    assert (here / "shoe.merged.png").read_bytes() == b"another"
    assert [path.name for path in data.iterdir()] == ["shoe.png"]


def test_what_lies_beyond_the_last_patch_is_not_shown() -> None:
    odd = create_backbone(PUBLISHED_ODD, {"embed_dim": 24, "depth": 2, "num_heads": 3})
    image = torch.randint(256, (3, 384, 384), dtype=torch.uint8)
    seen = in_patches(image, odd)
    assert torch.equal(seen, image[:, :378, :378])
    model = model_of(odd, Method("bdm", {"block": 0}))
    header = small_header(odd)
    row = figure("bdm", model, image[None], dataclasses.replace(header.preprocessing, size=(384, 384)))
    assert row.width > 3 * 448
    assert merged(seen, torch.arange(27 * 27).view(27, 27)).shape == (3, 756, 756)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["IMAGE"], "cannot read the image"),
        (["missing.png"], "cannot read the image missing.png"),
        (["SAMPLE", "--output", "merged.jpg"], "ends in .png"),
        (["IMAGE", "--output", "IMAGE"], "the image itself"),
        (["SAMPLE", "--task", "nothing"], "no embedded task 'nothing'"),
        (["SAMPLE", "--task", "NONE"], "nothing merges"),
        (["SAMPLE", "--output", "IMAGE/merged.png"], "cannot be written"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(
    wrong: list[str], message: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "image.png"
    text.write_text("no picture")
    unreduced = files[-1].replace("bdm", "none")
    named = {"IMAGE": str(text), "SAMPLE": str(SAMPLES[0]), "NONE": unreduced, "IMAGE/merged.png": f"{text}/merged.png"}
    assert main(["visualize", *files, *(named.get(word, word) for word in wrong)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("fpet: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert [path.name for path in tmp_path.iterdir()] == ["image.png"]
    assert not Path("merged.jpg").exists()
