"""How other libraries name the layers of a Vision Transformer that a low-rank update can reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Names(NamedTuple):
    """One library's naming.

    block: the path of a block, with its number to be filled in; layers: the path below it, by our target; head: the
    path of the classifier.
    """

    block: str
    layers: Mapping[str, str]
    head: str

    def layer(self, block: int, target: str) -> str:
        """The path of a layer in the model."""
        return f"{self.block.format(block)}.{self.layers[target]}"


_TIMM = {"qkv": "attn.qkv", "proj": "attn.proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
_TRANSFORMERS = {
    "q": "attention.q_proj",
    "k": "attention.k_proj",
    "v": "attention.v_proj",
    "proj": "attention.o_proj",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}
# Releases before 5, and the files of every release.
_TRANSFORMERS_4 = {
    "q": "attention.attention.query",
    "k": "attention.attention.key",
    "v": "attention.attention.value",
    "proj": "attention.output.dense",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
}

TIMM = Names("blocks.{}", _TIMM, "head")
WRAPPED_TIMM = Names("timm_model.blocks.{}", _TIMM, "timm_model.head")  # in transformers' TimmWrapper
VIT = Names("vit.layers.{}", _TRANSFORMERS, "classifier")
DEIT = Names("deit.layers.{}", _TRANSFORMERS, "classifier")
VIT_4 = Names("vit.encoder.layer.{}", _TRANSFORMERS_4, "classifier")
DEIT_4 = Names("deit.encoder.layer.{}", _TRANSFORMERS_4, "classifier")
ALL = (TIMM, WRAPPED_TIMM, VIT, DEIT, VIT_4, DEIT_4)


def places(depth: int, libraries: Sequence[Names] = ALL) -> dict[str, tuple[int, str]]:
    """Block and target of every layer of a model of that depth, by its path in any of the libraries."""
    return {
        names.layer(block, target): (block, target)
        for names in libraries
        for block in range(depth)
        for target in names.layers
    }
