"""Pictures of what merged: every patch in the mean colour of its group, lines between groups (FPET, figure A3)."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from fpet.backbone import Backbone
from fpet.groups import GONE, token_of_patch, tokens_left
from fpet.preprocess import Preprocessing
from fpet.reducers.tome import ToMe
from fpet.vit import AdaptedViT

_PANEL = 448  # pixels of a panel's longer side, at least
_MARGIN = 12
_CAPTION = 18
_LINE = 64  # grey level of the lines
_GONE_COLOUR = (64.0, 0.0, 0.0)  # of a patch that no token holds

Panel = tuple[str, Tensor]  # caption and uint8 [3, H, W]


def figure(name: str, model: AdaptedViT, images: Tensor, preprocessing: Preprocessing) -> Image.Image:
    """A row for each image: the image; what merged in the model, whose reduction has that name; what merges in ToMe.

    images: uint8 [B, 3, H, W] at the model's input size. ToMe runs on the same backbone and adapter, in equal steps
    down to as many tokens, or as near as it gets. The model keeps its mode.
    """
    model = model.in_evaluation()
    return _arrange([_row(name, model, image, preprocessing) for image in images])


def _row(name: str, model: AdaptedViT, image: Tensor, preprocessing: Preprocessing) -> list[Panel]:
    normalised = preprocessing.normalize(image[None].to(model.backbone.device), model.backbone.dtype)
    places = token_of_patch(model, normalised)[0].cpu()
    left = tokens_left(places, model.tokens_in)
    seen = in_patches(image, model.backbone)
    tome_places = token_of_patch(_tome_down_to(left, model), normalised)[0].cpu()
    return [
        (f"{model.tokens_in} tokens", _enlarged(seen)),
        (f"{name}: {left} tokens", merged(seen, places)),
        (f"tome: {tokens_left(tome_places, model.tokens_in)} tokens", merged(seen, tome_places)),
    ]


def _tome_down_to(tokens: int, model: AdaptedViT) -> AdaptedViT:
    """The same backbone, adapter and head with ToMe, which merges in equal steps down to that many tokens."""
    geometry = model.backbone.geometry
    each, rest = divmod(model.tokens_in - tokens, geometry.depth)
    r = [each + 1] * rest + [each] * (geometry.depth - rest)
    reducer = ToMe(geometry, model.layout_in, r=r)
    return AdaptedViT(model.backbone, model.adapter, reducer.to(model.backbone.device), model.head).eval()


def in_patches(image: Tensor, backbone: Backbone) -> Tensor:
    """uint8 [3, H, W] -> [3, h, w]: without the rows and columns at its end that fill no patch, which no model sees."""
    vit: Any = backbone.vit
    (rows, columns), (down, across) = backbone.geometry.grid, vit.patch_embed.patch_size
    return image[:, : rows * down, : columns * across]


def merged(image: Tensor, places: Tensor) -> Tensor:
    """uint8 [3, H, W] and the group of each patch, int64 [rows, columns] -> uint8 [3, k H, k W], enlarged.

    H and W are whole patches, as `in_patches` makes them. A patch in no group (-1) is dark red.
    """
    _, height, width = image.shape
    cells = _repeat(places, height // places.shape[0], width // places.shape[1])
    numbers = cells.flatten() - GONE  # from 0
    colours = torch.zeros(int(numbers.max()) + 1, 3, dtype=torch.float32)
    colours.index_add_(0, numbers, image.flatten(1).mT.float())
    colours /= numbers.bincount()[:, None].clamp(min=1)
    colours[0] = torch.tensor(_GONE_COLOUR)
    filled = colours[numbers].round().to(torch.uint8).mT.view_as(image)
    k = _enlargement(image)
    return _outlined(_enlarged(filled), _repeat(cells, k, k))


def _outlined(image: Tensor, cells: Tensor) -> Tensor:
    """Draws the last pixel before another group, to the right or below."""
    line = torch.zeros_like(cells, dtype=torch.bool)
    line[:, :-1] |= cells[:, :-1] != cells[:, 1:]
    line[:-1] |= cells[:-1] != cells[1:]
    return image.masked_fill(line, _LINE)


def _enlargement(image: Tensor) -> int:
    return max(1, -(-_PANEL // max(image.shape[-2:])))


def _enlarged(image: Tensor) -> Tensor:
    k = _enlargement(image)
    return _repeat(image, k, k)


def _repeat(pixels: Tensor, down: int, across: int) -> Tensor:
    """[..., H, W] -> [..., down * H, across * W]."""
    return pixels.repeat_interleave(down, dim=-2).repeat_interleave(across, dim=-1)


def _arrange(rows: list[list[Panel]]) -> Image.Image:
    height, width = rows[0][0][1].shape[-2:]
    down, across = _CAPTION + _MARGIN + height, width + _MARGIN
    canvas = Image.new("RGB", (_MARGIN + across * len(rows[0]), _MARGIN + down * len(rows)), "white")
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(_CAPTION)
    for i, row in enumerate(rows):
        for j, (caption, panel) in enumerate(row):
            left, top = _MARGIN + across * j, _MARGIN // 2 + down * i
            draw.text((left, top), caption, fill="black", font=font)
            pixels = Image.fromarray(panel.permute(1, 2, 0).numpy())
            canvas.paste(pixels, (left, top + _CAPTION + _MARGIN // 2))
    return canvas
