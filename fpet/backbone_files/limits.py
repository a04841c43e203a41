"""What a backbone may ask for, checked before it gets the memory: a file of few bytes may describe a model of many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fpet.errors import BackboneError
from fpet.tensor_names import dtype_name

# Far beyond any published plain Vision Transformer. Weights bound all else, but neither the time that timm takes for
# blocks without values, nor the image size of a model without position embeddings.
MOST_BLOCKS = 128
MOST_PATCHES = 2**16  # of an image
MOST_PIXELS = 2**24  # of an image
MOST_EXPANSION = 32  # of an archive's bytes when it is unpacked; weights hardly compress
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_depth(arguments: Mapping[str, object]) -> None:
    """Raises BackboneError unless `depth`, if it is given, is a number of blocks that timm can make in seconds."""
    depth = arguments.get("depth", 1)
    if type(depth) is not int or not 1 <= depth <= MOST_BLOCKS:
        raise BackboneError(f"depth = {depth!r}: it should be a whole number from 1 to {MOST_BLOCKS}")


def check_image_size(vit: Any) -> None:
    """Raises BackboneError if the images of a timm model, or their patches, are more than a forward pass can take."""
    for what, sides, most in (
        ("pixels", vit.patch_embed.img_size, MOST_PIXELS),
        ("patches", vit.patch_embed.grid_size, MOST_PATCHES),
    ):
        if math.prod(sides) > most:
            raise BackboneError(f"an image of {' x '.join(map(str, sides))} {what} has more than {most}")


def check_whole_patches(vit: Any, arguments: Mapping[str, object]) -> None:
    """Raises BackboneError if an image has pixels that no patch would see, save at sizes that timm publishes.

    One is vit_so400m_patch14_siglip_gap_384, which sees 378 of 384 pixels a side.
    """
    image, patch = vit.patch_embed.img_size, vit.patch_embed.patch_size
    published = "patch_size" not in arguments and tuple(image) == tuple(vit.pretrained_cfg["input_size"][1:])
    if not published and any(side % step for side, step in zip(image, patch, strict=True)):
        pixels, step = (" x ".join(map(str, sides)) for sides in (image, patch))
        raise BackboneError(
            f"an image of {pixels} pixels is no whole number of patches of {step}: its last pixels would never be "
            "seen; give another img_size"
        )


def check_archive(content: int, size: int) -> None:
    """Raises BackboneError if a zip archive of `size` bytes has more content than weights in such a file can be."""
    if content > MOST_EXPANSION * size:
        raise BackboneError(f"the archive of {size} bytes holds {content}, more than {MOST_EXPANSION} times as many")


def check_stored(name: str, tensor: Tensor) -> None:
    """Raises BackboneError unless a torch checkpoint holds each value of the tensor, as torch computes with it."""
    if tensor.is_nested or tensor.is_quantized or tensor.layout != torch.strided:
        raise BackboneError(f"{name!r} is nested, quantised or sparse instead of dense")
    # However large the shape, it takes no bytes in the file by itself.
    if tensor.is_meta or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        raise BackboneError(f"{name!r} has shape {list(tensor.shape)}, but not as many values")


def check_weights(vit: Any, architecture: str, state: Mapping[str, Tensor]) -> None:
    """Raises BackboneError, naming the first key, unless these are finite weights for all that the model has.

    vit: the timm model, which may be on the meta device.
    """
    expected = vit.state_dict()
    for key in sorted(expected.keys() | state.keys()):
        if key not in state:
            raise BackboneError(f"weights for {architecture} lack {key!r}")
        if key not in expected:
            hint = "; with global_pool=avg it has" if key.startswith("fc_norm.") else ""
            raise BackboneError(f"weights for {architecture} have {key!r}, which the model does not{hint}")
        if state[key].shape != expected[key].shape:
            raise BackboneError(
                f"{key!r} has shape {list(state[key].shape)}; {architecture} needs {list(expected[key].shape)}"
            )
        if state[key].dtype not in FLOATS and state[key].dtype != expected[key].dtype:
            found = dtype_name(state[key].dtype)
            raise BackboneError(f"{key!r} is {found}; weights are floating-point numbers of 16 to 64 bits")
        if not state[key].isfinite().all():
            raise BackboneError(f"{key!r} has values that are not finite")
