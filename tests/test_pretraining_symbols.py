"""Symbols of icon sets, and the forward in which patches merge, as pre-training has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fpet.data import icons
from pretraining import augment, model, packages, symbols
from pretraining.exclusions import excluded_symbol
from pretraining.merging import features, pooled

SQUARE = '<path fill="currentColor" d="M0 0h16v16H0z"/>'
SETS = ("a", "b", "c", "d")


def write_sets(raw: Path, sets: dict[str, dict[str, object]], icons: list[str], **more: object) -> None:
    """Writes icon sets in Iconify's format, all with the same icons; sets: what the table says of each."""
    root = raw / packages.ICON_SETS.name
    (root / "json").mkdir(parents=True)
    table = {prefix: {"license": {"spdx": "MIT"}, **information} for prefix, information in sets.items()}
    (root / "collections.json").write_text(json.dumps(table))
    for prefix in sets:
        content = {"prefix": prefix, "icons": {name: {"body": SQUARE} for name in icons}, **more}
        (root / "json" / f"{prefix}.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("icon", "name"),
    [
        ("arrow-left", "arrow-left"),
        ("arrow-left-20-filled", "arrow-left"),
        ("outline-arrow-left", "arrow-left"),
        ("round-bell-sharp", "bell"),
        ("outline", "outline"),
    ],
)
def test_what_an_icon_stands_for_is_its_name_without_style(icon: str, name: str) -> None:
    assert symbols.meaning(icon) == name


@pytest.mark.parametrize(
    "name",
    [
        *icons.NAMES,
        *("animals", "buildings", "food", "plants", "tools", "transportation"),
        *("plus-circle", "search", "home", "trash", "camera-off", "laptop", "undo", "printer", "mic", "scissors"),
        *("cat", "fish-bone", "hot-dog", "palm-tree", "car-side", "house-user", "weather-rain", "hammer", "trophy"),
        *("t-shirt", "shopping-bag", "number-one", "dice-three", "battery-50", "calendar-check", "clock"),
    ],
)
def test_symbols_of_the_tasks_are_left_out(name: str) -> None:
    assert excluded_symbol(name)
    assert not excluded_symbol("arrow-left")


def test_names_that_few_sets_draw_and_sets_that_are_not_free_are_left_out(tmp_path: Path) -> None:
    barred: dict[str, dict[str, object]] = {
        "not-free": {"license": {"spdx": "CC-BY-NC-4.0"}},
        "brands": {"category": "Logos"},
        "emojione": {},
    }
    assert symbols.symbols(tmp_path) == []
    write_sets(tmp_path, {**{prefix: {} for prefix in SETS}, **barred}, ["bell", "bell-outline", "cat"])
    found = symbols.symbols(tmp_path)
    assert [one.name for one in found] == ["symbol/bell"] * 2 * len(SETS)

    rare = json.loads((file := tmp_path / "@iconify/json/json/a.json").read_text())
    del rare["icons"]["bell"], rare["icons"]["bell-outline"]
    file.write_text(json.dumps(rare))
    assert symbols.symbols(tmp_path) == []


def test_of_many_styles_of_one_drawing_three_are_kept(tmp_path: Path) -> None:
    styles = ["bell", *(f"bell-{style}" for style in ("bold", "duotone", "fill", "light", "thin"))]
    write_sets(tmp_path, {prefix: {"palette": True} for prefix in SETS}, styles)
    found = symbols.symbols(tmp_path)
    assert len(found) == 3 * len(SETS)
    assert all(one.coloured for one in found)


def test_emoji_of_further_artists_have_the_classes_of_the_first_two(tmp_path: Path) -> None:
    chars = {"1f4d4": "notebook", "1f415": "dog", "1f600": "grinning-face"}
    write_sets(tmp_path, {"openmoji": {"palette": True}}, list(chars.values()), chars=chars)
    assert symbols.emoji(tmp_path) == []  # no table says what they are
    table = tmp_path / packages.EMOJI_PACKAGES["google"].name / "emoji.json"
    table.parent.mkdir()
    common = {"image": "1.png", "short_name": "x"}
    entries = [
        {**common, "category": "Objects", "subcategory": "book-paper", "unified": "1F4D4"},
        {**common, "category": "Animals & Nature", "subcategory": "animal-mammal", "unified": "1F415"},
    ]
    table.write_text(json.dumps(entries))
    assert [(one.name, one.coloured) for one in symbols.emoji(tmp_path)] == [("emoji/1f4d4", True)]


def test_symbols_are_drawn_as_ink_or_in_their_colours(capsys: pytest.CaptureFixture[str]) -> None:
    box = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" width="16" height="16">{}</svg>'
    half = box.format('<path fill="{}" d="M0 0h8v16H0z"/>')
    drawings = [
        symbols.Symbol("symbol/half", half.format("currentColor"), coloured=False),
        symbols.Symbol("symbol/red", half.format("#f00"), coloured=True),
        symbols.Symbol("symbol/nothing", box.format(""), coloured=True),
        symbols.Symbol("symbol/broken", "<svg", coloured=True),
    ]
    found = {name: np.asarray(picture) for name, picture in symbols.draw_all(drawings, 32)}
    assert list(found) == ["symbol/half", "symbol/red"]
    assert "skipped a drawing of symbol/broken" in capsys.readouterr().out
    ink, red = found.values()
    assert ink.shape == red.shape == (32, 32, 4)
    assert (ink[..., :3] == 255).all()
    assert (red[:, :16] == [255, 0, 0, 255]).all()
    for alpha in (ink[..., 3], red[..., 3]):
        assert (alpha[:, :16] == 255).all()
        assert (alpha[:, 16:] == 0).all()


def test_what_is_white_all_over_is_ink_and_all_else_keeps_its_colours() -> None:
    ink, red = torch.zeros(2, 8, 8, 4, dtype=torch.uint8)
    ink[..., :3] = 255
    red[..., 0] = 255
    for image in (ink, red):
        image[:, :4, 3] = 255
    plain = augment.normalise(torch.stack([ink, red]), 8)
    assert (plain[0, :, :, :4] == -1).all()  # black
    assert (plain[1, :, :, :4] == torch.tensor([1.0, -1, -1])[:, None, None]).all()
    assert (plain[..., 4:] == 1).all()

    torch.manual_seed(0)
    views = augment.augment(torch.stack([ink, red]).repeat_interleave(200, dim=0), 8, 0.05)
    darkest = views.amin(dim=1).mean(dim=(1, 2))  # of red's channels two are dark, where ink on black is light
    assert darkest[:200].mean() > darkest[200:].mean() + 0.3
    channels = views[:200].mean(dim=(2, 3))
    spread = channels.amax(dim=1) - channels.amin(dim=1)
    assert (spread > 0.1).float().mean() > 0.25  # ink has colours; half of all views have lost theirs


@torch.inference_mode()
def test_features_are_timms_and_half_of_the_patches_can_merge() -> None:
    torch.manual_seed(0)
    vit = model.create(model.ARCHITECTURES[0], 5).eval()
    views = torch.randn(2, 3, 112, 112)
    plain = features(vit, views, None)
    torch.testing.assert_close(plain.x, vit.forward_features(views))
    merged = features(vit, views, 6)
    assert merged.x.shape == (2, 99, 192)
    assert merged.size is not None
    assert merged.size.sum(dim=1).tolist() == [[197.0], [197.0]]

    class_token, mean = pooled(plain, 1)
    torch.testing.assert_close(class_token, plain.x[:, 0])
    torch.testing.assert_close(mean, plain.x[:, 1:].mean(dim=1))
    weighted = (merged.x * merged.size)[:, 1:].sum(dim=1) / 196
    torch.testing.assert_close(pooled(merged, 1)[1], weighted)


@torch.inference_mode()
def test_the_features_that_are_exported_differ_by_one_factor_and_have_gains_of_unit_scale() -> None:
    torch.manual_seed(0)
    vit = model.create(model.ARCHITECTURES[0], 5).eval()
    vit.norm.weight.uniform_(1, 4)
    vit.norm.bias.normal_()
    views = torch.randn(2, 3, 112, 112)
    plain = model.without_classifier(model.ARCHITECTURES[0], vit).eval()
    factor = vit.norm.weight.square().mean().sqrt()
    assert factor > 2
    torch.testing.assert_close(plain.norm.weight.square().mean(), torch.tensor(1.0))
    torch.testing.assert_close(factor * plain.forward_features(views), vit.forward_features(views))
