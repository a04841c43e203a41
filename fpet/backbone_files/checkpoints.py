"""Reads checkpoints by what the bytes are, not by what the file is called.

safetensors, torch's own format and numpy archives are read; nothing that a file holds is ever executed.
"""

from __future__ import annotations

import argparse
import io
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fpet.backbone_files.description import Description
from fpet.backbone_files.limits import check_archive, check_stored
from fpet.errors import BackboneError
from fpet.files import exists, read_regular
from fpet.safetensors_files import parse_safetensors
from fpet.words import first

_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_HEADER_AT = 8  # safetensors: the header's length in 8 bytes, then the header, which begins with a brace
# Parts of torch's messages: terminal styles, and what it says of a file that holds a pickled or TorchScript module.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PICKLED = re.compile(r"Unsupported global: GLOBAL (\S+)|TorchScript archive")
# Where training scripts keep the weights, the better ones first: timm's order, then the networks of DINO, whose teacher
# is the average that is published.
_NESTS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher", "student")
_LISTED = 5  # keys of a checkpoint that a message names, at most


@dataclass(frozen=True)
class WeightsFile:
    """A file's tensors, under the names that they have there, and its description if we wrote it."""

    state: dict[str, Tensor]
    description: Description | None = None


def read_checkpoint(path: Path) -> WeightsFile:
    """Reads a file of weights.

    Raises:
        BackboneError: naming the file, if it cannot be read, is damaged, or is none of the three formats.
    """
    if exists(path, BackboneError) and path.is_dir():
        raise BackboneError(
            f"{path}: this is a folder, not a file; `fpet convert FOLDER --output FILE` makes a backbone of a folder "
            "that Hugging Face transformers saved"
        )
    data = read_regular(path, BackboneError)
    try:
        if data[_HEADER_AT : _HEADER_AT + 1] == b"{":
            metadata, state = parse_safetensors(data, path, BackboneError)
            return WeightsFile(state, Description.of(metadata))
        if data.startswith(_ZIP) and any(name.endswith(".npy") for name in _members(data)):
            return WeightsFile(_numpy(data))
        if data.startswith((_ZIP, _PICKLE)):
            return WeightsFile(_torch(data))
    except BackboneError as error:
        named = str(error).startswith(f"{path}: ")
        raise error if named else BackboneError(f"{path}: {error}") from error
    raise BackboneError(f"{path}: neither safetensors, nor a torch checkpoint, nor an .npz archive")


def _members(data: bytes) -> list[str]:
    """The names in an archive that decompresses to no more than weights can be."""
    try:
        members = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except Exception as error:  # damage shows as errors of zip, of text encodings, of features that it lacks
        raise BackboneError(f"the archive is damaged or incomplete: {error}") from error
    check_archive(sum(member.file_size for member in members), len(data))
    return [member.filename for member in members]


def _numpy(data: bytes) -> dict[str, Tensor]:
    state = {}
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        for name in archive.files:
            try:
                state[name] = torch.from_numpy(archive[name])
            except Exception as error:  # damage shows as errors of zip, of zlib and of numpy
                raise BackboneError(f"the array {name!r} cannot be read: {error}") from error
    return state


def _torch(data: bytes) -> dict[str, Tensor]:
    try:
        # The checkpoints of DeiT and timm hold the training script's options beside the weights: inert values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # unpickling foreign bytes fails in every way
        raise BackboneError(f"not a torch checkpoint of plain weights: {_reason(error)}") from error
    for nest in _NESTS:
        if isinstance(loaded, dict) and loaded.get(nest) is not None:
            loaded = loaded[nest]
            break
    if not isinstance(loaded, dict):
        raise BackboneError(f"the torch checkpoint holds a {type(loaded).__name__} instead of weights by name")
    for name, value in loaded.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise BackboneError(
                f"the torch checkpoint holds a {type(value).__name__} under {name!r} among the weights; its keys are "
                f"{first(map(repr, loaded), most=_LISTED)}; weights are read if they lie at the top or under "
                f"{', '.join(_NESTS[:-1])} or {_NESTS[-1]}"
            )
        check_stored(name, value)
    return dict(loaded)


def _reason(error: Exception) -> str:
    """Why torch does not read a checkpoint: the line that says so, out of its long message styled for a terminal."""
    words = "".join(char for char in _STYLE.sub("", str(error)) if char.isprintable() or char == "\n")
    if found := _PICKLED.search(words):
        return f"it holds a pickled {found[1] or 'module'}, not tensors; save the model's state_dict()"
    lines = words.rpartition("WeightsUnpickler error:")[2].strip().splitlines()
    return lines[0] if lines else type(error).__name__
