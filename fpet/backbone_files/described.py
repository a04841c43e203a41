"""What a timm model tells of itself: its shape, its fingerprint, and whether architecture and arguments describe it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fpet.comparison import beyond_tolerance, normal
from fpet.errors import BackboneError
from fpet.tokens import Geometry

_TOLERANCE = 1e-5  # relative to the largest value; both compute in float32, from the same weights
_TRAITS = ("global_pool", "num_heads", "eps")  # where these differ, so does what is computed


def geometry(vit: Any) -> Geometry:
    """Reads the shape of a timm Vision Transformer off the model."""
    attn = vit.blocks[0].attn
    rows, columns = vit.patch_embed.grid_size
    return Geometry(
        depth=len(vit.blocks),
        embed_dim=vit.embed_dim,
        mlp_dim=vit.blocks[0].mlp.fc1.out_features,
        num_heads=attn.num_heads,
        head_dim=attn.head_dim,
        grid=(rows, columns),
        num_prefix_tokens=vit.num_prefix_tokens,
        patch_dim=vit.patch_embed.proj.weight[0].numel(),
    )


def fingerprint(vit: nn.Module) -> str:
    """SHA-256 over names, shapes and float32 values of the weights, in hexadecimal."""
    digest = hashlib.sha256()
    for name, value in sorted(vit.state_dict().items()):
        digest.update(f"{name} {list(value.shape)}\n".encode())
        digest.update(value.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def check_described(vit: nn.Module, described: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Compares what two models compute of one random image: others may have weights of the same names and shapes.

    vit: the timm model, on any device, of any dtype and in either mode; it is left as it is. described: the one that
    architecture and arguments make, which may be on the meta device. state: weights of both, float32 on the CPU.

    Raises:
        BackboneError: naming what differs, as far as it is known.
    """
    differing = "; ".join(_differing(vit, described))
    if not differing and not _computes_alike(vit, described, state):
        differing = "the same weights compute something else"
    if differing:
        raise BackboneError(
            f"the arguments describe another model: {differing}; give those that timm.create_model made the model with"
        )


def _differing(vit: nn.Module, described: nn.Module) -> Iterator[str]:
    """For each trait the first module in which the models differ, in words."""
    modules = dict(vit.named_modules())
    for trait in _TRAITS:
        for name, module in described.named_modules():
            said = getattr(module, trait, None)
            own = getattr(modules.get(name), trait, said)
            if own != said:
                yield f"{name}.{trait}".removeprefix(".") + f" is {own!r} in the model, {said!r} as described"
                break


def _computes_alike(vit: nn.Module, described: nn.Module, state: Mapping[str, Tensor]) -> bool:
    patches: Any = described.patch_embed
    image = normal(1, 3, *patches.img_size)
    expected = _features(described, state, image)
    try:
        found = _features(vit, state, image)
    except Exception as error:  # timm meets images that a model does not take with errors of every kind
        raise BackboneError(
            f"the arguments describe another model: this one fails at an image of {list(image.shape)}: {error}"
        ) from error
    return found.shape == expected.shape and beyond_tolerance(found, expected, _TOLERANCE) is None


class _Pooled(nn.Module):
    """A timm model up to its classifier: images [B, 3, H, W] -> pooled features [B, C]."""

    def __init__(self, vit: Any) -> None:
        super().__init__()
        self.vit = vit

    def forward(self, images: Tensor) -> Tensor:
        pooled: Tensor = self.vit.forward_head(self.vit.forward_features(images), pre_logits=True)
        return pooled


def _features(vit: nn.Module, state: Mapping[str, Tensor], image: Tensor) -> Tensor:
    """Pooled features [1, C] of an image [1, 3, H, W], with these weights in evaluation; the model keeps its own."""
    modes = [(module, module.training) for module in vit.modules()]
    weights = {f"vit.{name}": value for name, value in state.items()}
    try:
        with torch.no_grad():
            features: Tensor = functional_call(_Pooled(vit).eval(), weights, (image,))
    finally:
        for module, mode in modes:
            module.training = mode
    return features
