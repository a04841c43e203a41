"""The names and shapes of google-research's vision_transformer, whose checkpoints are .npz files such as ViT-B_16.npz.

timm reads them too (`VisionTransformer.load_pretrained`), but resizes patch embeddings of another architecture, leaves
out blocks that the model does not have, and takes any number of heads; here all of that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from fpet.errors import BackboneError

_MARK = "embedding/kernel"
_STEM = {
    "cls": "cls_token",
    "embedding/kernel": "patch_embed.proj.weight",
    "embedding/bias": "patch_embed.proj.bias",
    "Transformer/posembed_input/pos_embedding": "pos_embed",
    "Transformer/encoder_norm/scale": "norm.weight",
    "Transformer/encoder_norm/bias": "norm.bias",
}
_BLOCK = {
    "LayerNorm_0/scale": "norm1.weight",
    "LayerNorm_0/bias": "norm1.bias",
    "LayerNorm_2/scale": "norm2.weight",
    "LayerNorm_2/bias": "norm2.bias",
    "MultiHeadDotProductAttention_1/out/kernel": "attn.proj.weight",
    "MultiHeadDotProductAttention_1/out/bias": "attn.proj.bias",
    "MlpBlock_3/Dense_0/kernel": "mlp.fc1.weight",
    "MlpBlock_3/Dense_0/bias": "mlp.fc1.bias",
    "MlpBlock_3/Dense_1/kernel": "mlp.fc2.weight",
    "MlpBlock_3/Dense_1/bias": "mlp.fc2.bias",
}
_LEFT_OUT = ("head/", "pre_logits/")  # the classifier, and the hidden layer before it


def is_flax(state: Mapping[str, Tensor]) -> bool:
    """Whether the tensors have google-research's names."""
    return _MARK in state


def from_flax(state: Mapping[str, Tensor], num_heads: int) -> dict[str, Tensor]:
    """The weights under timm's names and in its shapes, without a classifier; what has no timm name keeps its own.

    Raises:
        BackboneError: if queries, keys or values of a block are missing, unequal, or of another number of heads; if a
            kernel is no matrix.
    """
    converted: dict[str, Tensor] = {}
    attention: dict[str, None] = {}  # the blocks' numbers, in order
    for name, value in state.items():
        block = re.fullmatch(r"Transformer/encoderblock_(\d+)/(.+)", name)
        if name.startswith(_LEFT_OUT):
            continue
        if name in _STEM:
            converted[_STEM[name]] = _transposed(name, value)
        elif block and block[2] in _BLOCK:
            converted[f"blocks.{block[1]}.{_BLOCK[block[2]]}"] = _transposed(name, value)
        elif block and re.fullmatch(r"MultiHeadDotProductAttention_1/(query|key|value)/(kernel|bias)", block[2]):
            attention[block[1]] = None
        else:
            converted[name] = value
    for i in attention:
        for kind, parameter in (("kernel", "weight"), ("bias", "bias")):
            converted[f"blocks.{i}.attn.qkv.{parameter}"] = _qkv(state, i, kind, num_heads)
    return converted


def _transposed(name: str, value: Tensor) -> Tensor:
    """flax multiplies from the right: inputs come before outputs, and a convolution's channels last."""
    if not name.endswith("kernel"):
        return value
    if value.ndim == 4:  # [height, width, in, out]
        return value.permute(3, 2, 0, 1)
    if value.ndim < 2:
        raise BackboneError(f"{name!r} has shape {list(value.shape)}, which is of no kernel")
    return value.flatten(0, -2).T  # [in, out], and [heads, head_dim, out] after attention


def _qkv(state: Mapping[str, Tensor], block: str, kind: str, num_heads: int) -> Tensor:
    """[3C, C] of kernels [C, heads, head_dim], or [3C] of biases [heads, head_dim]."""
    dimensions = 3 if kind == "kernel" else 2
    parts: list[Tensor] = []
    for part in ("query", "key", "value"):
        name = f"Transformer/encoderblock_{block}/MultiHeadDotProductAttention_1/{part}/{kind}"
        if name not in state:
            raise BackboneError(f"the weights lack {name!r}")
        value = state[name]
        if value.ndim != dimensions or value.shape[-2] != num_heads:
            raise BackboneError(f"{name!r} has shape {list(value.shape)}, which is not of {num_heads} heads")
        parts.append(value.flatten(-2).T if kind == "kernel" else value.flatten())
        if (parts[-1].shape, parts[-1].dtype) != (parts[0].shape, parts[0].dtype):
            raise BackboneError(f"{name!r} has another shape or type than the queries'")
    return torch.cat(parts)
