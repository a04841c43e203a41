"""Weights of a timm model in the layouts that their authors publish, written out here a second time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Arrays = dict[str, NDArray[np.float32]]


def google(vit: Any) -> Arrays:
    """The .npz of google-research/vision_transformer, with its classifier and the layer before it."""
    channels, heads = vit.embed_dim, vit.blocks[0].attn.num_heads
    arrays = {
        "cls": vit.cls_token,
        "embedding/kernel": vit.patch_embed.proj.weight.permute(2, 3, 1, 0),
        "embedding/bias": vit.patch_embed.proj.bias,
        "Transformer/posembed_input/pos_embedding": vit.pos_embed,
        "Transformer/encoder_norm/scale": vit.norm.weight,
        "Transformer/encoder_norm/bias": vit.norm.bias,
        "pre_logits/kernel": torch.eye(channels),
        "pre_logits/bias": torch.zeros(channels),
        "head/kernel": torch.zeros(channels, 5),
        "head/bias": torch.zeros(5),
    }
    for i, block in enumerate(vit.blocks):
        name = f"Transformer/encoderblock_{i}"
        attention = f"{name}/MultiHeadDotProductAttention_1"
        weights, biases = block.attn.qkv.weight.chunk(3), block.attn.qkv.bias.chunk(3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            arrays[f"{attention}/{part}/kernel"] = weight.T.reshape(channels, heads, -1)
            arrays[f"{attention}/{part}/bias"] = bias.reshape(heads, -1)
        arrays[f"{attention}/out/kernel"] = block.attn.proj.weight.T.reshape(heads, -1, channels)
        arrays[f"{attention}/out/bias"] = block.attn.proj.bias
        for norm, layer in (("LayerNorm_0", block.norm1), ("LayerNorm_2", block.norm2)):
            arrays[f"{name}/{norm}/scale"], arrays[f"{name}/{norm}/bias"] = layer.weight, layer.bias
        for dense, layer in (("Dense_0", block.mlp.fc1), ("Dense_1", block.mlp.fc2)):
            arrays[f"{name}/MlpBlock_3/{dense}/kernel"] = layer.weight.T
            arrays[f"{name}/MlpBlock_3/{dense}/bias"] = layer.bias
    return {name: value.detach().numpy() for name, value in arrays.items()}


def deit3(vit: Any) -> dict[str, Tensor]:
    """DeiT-III's own names for LayerScale."""
    return {re.sub(r"ls(\d)\.gamma", r"gamma_\1", name): value for name, value in vit.state_dict().items()}


def dinov2(vit: Any) -> dict[str, Tensor]:
    """DINOv2 with registers: the class token has a position of its own, which timm has added to it."""
    state = dict(vit.state_dict())
    position = torch.randn(1, 1, vit.embed_dim)
    state["register_tokens"] = state.pop("reg_token")
    state["cls_token"] = state["cls_token"] - position
    state["pos_embed"] = torch.cat([position, state["pos_embed"]], dim=1)
    state["mask_token"] = torch.zeros(1, vit.embed_dim)
    return state


def openai_clip(vit: Any) -> dict[str, Tensor]:
    """CLIP's own names, in half precision's place float32, beside a tensor of the text tower."""
    renamed = {
        "visual.class_embedding": vit.cls_token[0, 0],
        "visual.positional_embedding": vit.pos_embed[0],
        "visual.conv1.weight": vit.patch_embed.proj.weight,
        "visual.proj": torch.zeros(vit.embed_dim, 7),
        "text_projection": torch.zeros(3, 7),
    }
    for theirs, layer in (("ln_pre", vit.norm_pre), ("ln_post", vit.norm)):
        renamed[f"visual.{theirs}.weight"], renamed[f"visual.{theirs}.bias"] = layer.weight, layer.bias
    for i, block in enumerate(vit.blocks):
        layers = {
            "ln_1.": block.norm1,
            "attn.in_proj_": block.attn.qkv,
            "attn.out_proj.": block.attn.proj,
            "ln_2.": block.norm2,
            "mlp.c_fc.": block.mlp.fc1,
            "mlp.c_proj.": block.mlp.fc2,
        }
        for theirs, layer in layers.items():
            for parameter in ("weight", "bias"):
                renamed[f"visual.transformer.resblocks.{i}.{theirs}{parameter}"] = getattr(layer, parameter)
    return {name: value.detach().clone() for name, value in renamed.items()}
