"""What the forward does before its first block and behind its last: timm's layers seen through an adapter."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from fpet.adapters.base import Adapter
from fpet.tensor_names import described, dtype_name
from fpet.tokens import Tokens


def check_images(images: Tensor, patch_embed: Any) -> None:
    """Raises TypeError for what is no tensor of the layer's dtype, and ValueError for images of another shape."""
    size, dtype = tuple(patch_embed.img_size), patch_embed.proj.weight.dtype
    known = isinstance(images, Tensor)
    casts = known and images.is_floating_point() and torch.is_autocast_enabled(images.device.type)
    typed = casts or (known and images.dtype == dtype)
    if not typed or images.ndim != 4 or images.shape[1:] != (3, *size):
        raise (ValueError if typed else TypeError)(
            f"images are normalised {dtype_name(dtype)} [B, 3, {size[0]}, {size[1]}], as `Preprocessing.resize` and "
            f"`normalize` make them, not {described(images)}"
        )


def embed(vit: Any, adapter: Adapter, images: Tensor) -> Tensor:
    """Normalised images [B, 3, H, W] -> tokens [B, N, C] as the first block receives them."""
    x = adapter.patch_embed(vit.patch_embed, images)
    return cast(Tensor, vit.norm_pre(adapter.pos_embed(vit._pos_embed, x)))


def norms_pooled(vit: Any) -> bool:
    """Whether the final norm comes after the pooling, as where timm pools by the mean unless it is told otherwise."""
    return isinstance(vit.norm, nn.Identity) and not isinstance(vit.fc_norm, nn.Identity)


def norm(vit: Any, adapter: Adapter, tokens: Tokens) -> Tokens:
    """Tokens as the last block leaves them -> tokens after the final norm, unless that comes after the pooling."""
    x = vit.norm(tokens.x) if norms_pooled(vit) else adapter.norm(vit.norm, tokens.x)
    return Tokens(x, tokens.size)


def pool(vit: Any, adapter: Adapter, tokens: Tokens) -> Tensor:
    """Tokens [B, N', C] after the final norm -> embedding [B, C], by the backbone's own pooling, without the adapter's
    prompts."""
    x, size = _without_prompts(vit.num_prefix_tokens, adapter.num_prompts, tokens)
    if size is not None and vit.global_pool == "avg":
        # A mean over patches: each token counts as often as the patches that it stands for.
        patches = size if vit.pool_include_prefix else size[:, vit.num_prefix_tokens :]
        x = (x * (size / patches.mean(dim=1, keepdim=True))).to(x.dtype)
    if norms_pooled(vit):
        return adapter.norm(vit.fc_norm, vit.pool(x)[:, None])[:, 0]
    return cast(Tensor, vit.forward_head(x, pre_logits=True))


def _without_prompts(first: int, prompts: int, tokens: Tokens) -> Tokens:
    """Leaves out the prompts, which lie behind the first tokens."""
    if prompts == 0:
        return tokens
    x, size = (
        part if part is None else torch.cat([part[:, :first], part[:, first + prompts :]], dim=1) for part in tokens
    )
    return Tokens(cast(Tensor, x), size)
