"""Which patches of an image ended in which token."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from fpet.errors import UnsupportedError
from fpet.reducers.base import BlockReducer, Reducer
from fpet.tokens import PRESENT, Tokens
from fpet.vit import AdaptedViT

GONE = -1

# What a block's reducer is given: tokens, queries, keys.
Given = tuple[Tokens, Tensor, Tensor]


@torch.inference_mode()
def token_of_patch(model: AdaptedViT, images: Tensor) -> Tensor:
    """Normalised images [B, 3, H, W] -> for each patch the token that holds it, int64 [B, rows, columns].

    Tokens are numbered by their places in the sequence after the last block; -1 is a patch that none holds. They are
    those of evaluation mode, whatever mode the model is in.

    A reduction chooses by queries and keys and treats all channels alike. So each block's reducer runs a second time
    with the same queries and keys, on channels that are one-hot patch indices instead of features.

    Raises:
        UnsupportedError: if the reduction shares out a patch among several tokens.
    """
    model = model.in_evaluation()
    given = _given(model, images)
    tokens = given[0][0]
    held = torch.eye(tokens.x.shape[1], device=tokens.x.device).expand(tokens.x.shape[0], -1, -1)
    size = tokens.size
    for block, (tokens, query, key) in zip(model.reducer.blocks, given, strict=True):
        held, size = block(Tokens(held, tokens.size), query, key)
    rows, columns = model.backbone.geometry.grid
    holds = held[:, :, -rows * columns :] > 0  # [B, N', P]: prefix tokens and prompts stand before the patches
    if size is not None:
        holds &= size > PRESENT
    if (holds.sum(dim=1) > 1).any():
        raise UnsupportedError("the token reduction shares out patches among tokens: they form no groups")
    places = holds.int().argmax(dim=1).where(holds.any(dim=1), GONE)
    return places.view(-1, rows, columns)


def tokens_left(places: Tensor, tokens_in: int) -> int:
    """Tokens of an image after the last block: prefix tokens and prompts, which no reduction touches, and its groups.

    places: int64 [rows, columns], as `token_of_patch` gives them; tokens_in: tokens at the first block.
    """
    return tokens_in - places.numel() + len(places[places != GONE].unique())


class _Recorder(BlockReducer):
    """A block's reducer that remembers what it was given."""

    def __init__(self, block: BlockReducer) -> None:
        super().__init__(block.layout_out)
        self.block = block
        self.given: list[Given] = []

    def forward(self, tokens: Tokens, query: Tensor, key: Tensor) -> Tokens:
        self.given.append((tokens, query, key))
        return cast(Tokens, self.block(tokens, query, key))


class _Recording(Reducer):
    """The recorders of all blocks, whatever they leave."""

    tokens_vary = True


def _given(model: AdaptedViT, images: Tensor) -> list[Given]:
    """What the reducer of each block is given in a forward of the images; the model itself is left alone."""
    geometry = model.backbone.geometry
    recorders = [_Recorder(cast(BlockReducer, block)) for block in model.reducer.blocks]
    recording = _Recording(geometry, model.layout_in, lambda index, _: recorders[index])
    AdaptedViT(model.backbone, model.adapter, recording, model.head).eval().tokens(images)
    return [given for recorder in recorders for given in recorder.given]
