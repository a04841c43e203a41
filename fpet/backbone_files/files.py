"""Reads checkpoints by what the bytes are, not by what the file is called, and describes those that we write.

safetensors, torch's own format and numpy archives are read; nothing that a file holds is ever executed.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fpet.backbone_files.limits import check_archive, check_stored
from fpet.errors import BackboneError, UnsupportedError
from fpet.files import exists, read_regular
from fpet.json_values import check_json, is_finite
from fpet.preprocess import Preprocessing, Triple, check_precision
from fpet.safetensors_files import parse_safetensors
from fpet.words import first

FORMAT = 1
_METADATA_KEY = "fpet"
_ZIP = b"PK\x03\x04"
_PICKLE = b"\x80"
_HEADER_AT = 8  # safetensors: the header's length in 8 bytes, then the header, which begins with a brace
# In torch's words: how they are styled, and what it meets in a file that holds a module, pickled or as TorchScript.
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PICKLED = re.compile(r"Unsupported global: GLOBAL (\S+)|TorchScript archive")
# What may be chosen anew for a file that describes itself.
_ADJUSTABLE = {"img_size", "global_pool", "fc_norm", "pool_include_prefix"}
# Where training scripts keep the weights, the better ones first: timm's order, then the networks of DINO, whose teacher
# is the average that is published.
_NESTS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher", "student")
_LISTED = 5  # so many keys of a checkpoint does a message name


@dataclass(frozen=True)
class Description:
    """What a backbone file of ours says of itself.

    architecture, arguments: how timm makes the model; normalization: `mean` and `std` of its images, a channel each,
    or nothing where timm's table holds; provenance: free (source, SHA-256, versions).

    Raises:
        BackboneError: naming the field that is missing or of the wrong type.
    """

    architecture: str
    arguments: dict[str, object]
    normalization: dict[str, Triple] = field(default_factory=dict)
    provenance: dict[str, object] = field(default_factory=dict)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if not isinstance(self.architecture, str):
            raise BackboneError("the header's architecture is not text")
        for name in ("arguments", "normalization", "provenance"):
            if not isinstance(getattr(self, name), dict):
                raise BackboneError(f"the header's {name} is not an object")
        check_normalization(self.normalization)

    def adjusted(
        self, architecture: str | None, arguments: Mapping[str, object], normalization: Mapping[str, Triple]
    ) -> Description:
        """The same with another image size, pooling or normalisation; all else belongs to the file's weights.

        Raises:
            BackboneError: naming what the file says otherwise.
        """
        if architecture not in (None, self.architecture):
            raise BackboneError(f"the file is of {self.architecture}, not of {architecture}")
        size = arguments.get("img_size")
        if isinstance(size, (list, tuple)) and len(set(size)) == 1:  # as one number: tasks are compared by what it says
            arguments = {**arguments, "img_size": size[0]}
        for name, value in arguments.items():
            if name not in _ADJUSTABLE and self.arguments.get(name) != value:
                raise BackboneError(f"{name} = {value}: the file says itself how its weights are used")
        return dataclasses.replace(
            self,
            arguments={**self.arguments, **arguments},
            normalization={**self.normalization, **normalization},
        )

    def metadata(self) -> dict[str, str]:
        """The metadata of the safetensors file."""
        return {_METADATA_KEY: json.dumps(asdict(self))}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Description | None:
        """Reads it from a file's metadata; None if the file is not of our writing.

        Raises:
            BackboneError: naming the field that is missing, unknown or of the wrong type; or if it is the header of a
                task or of a folded task.
        """
        if _METADATA_KEY not in metadata:
            return None
        try:
            fields = json.loads(metadata[_METADATA_KEY])
        except RecursionError as error:
            raise BackboneError("the header is nested too deeply") from error
        except ValueError as error:
            raise BackboneError(f"the header is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise BackboneError("the header is not an object")
        if "adapter" in fields:
            raise BackboneError("this is a task, not a backbone")
        if "folded" in fields:
            raise BackboneError("this is a folded task, a checkpoint for stock timm, not the backbone of a task")
        if fields.get("format", FORMAT) != FORMAT:  # before its fields, which may well be others
            raise BackboneError(f"the header is not of backbone format {FORMAT}")
        for name in ("architecture", "arguments"):
            if name not in fields:
                raise BackboneError(f"the header lacks the field {name!r}")
        for name in fields:
            if name not in cls.__dataclass_fields__:
                raise BackboneError(f"the header has an unknown field {name!r}")
        return cls(**fields)


@dataclass(frozen=True)
class Checkpoint:
    """A file's tensors, under the names that they have there, and its description if we wrote it."""

    state: dict[str, Tensor]
    description: Description | None = None


def plain_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """Arguments as a JSON file gives them back: a tuple, timm's habit for sizes, becomes a list.

    Raises:
        BackboneError: naming the argument that a JSON file cannot hold.
    """
    plain: dict[str, object] = {}
    for name, value in arguments.items():
        try:
            check_json(value, "it")
            plain[name] = json.loads(json.dumps(value))
        except (TypeError, ValueError) as error:
            raise BackboneError(
                f"the argument {name!r} should be numbers, text or lists, as a JSON file holds them: {error}"
            ) from error
    return plain


def check_normalization(normalization: Mapping[str, Any]) -> None:
    """Raises BackboneError unless these are a `mean` and a `std`, or one of them, of three values of 0 to 1."""
    for name, values in normalization.items():
        if name not in ("mean", "std"):
            raise BackboneError(f"the normalization has an unknown field {name!r}")
        numbers = isinstance(values, (list, tuple)) and all(isinstance(value, (int, float)) for value in values)
        if not numbers or len(values) != 3 or not all(map(is_finite, values)):
            raise BackboneError(f"{name} = {values} is not three finite numbers, one a channel")
        if not all(0 <= value <= 1 for value in values):
            raise BackboneError(f"{name} = {values} is not of pixels from 0 to 1: divide those of 0 to 255 by 255")
    try:
        check_precision(Preprocessing((1, 1), **normalization))
    except (ValueError, UnsupportedError) as error:
        raise BackboneError(str(error)) from error


def read_checkpoint(path: Path) -> Checkpoint:
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
            return Checkpoint(state, Description.of(metadata))
        if data.startswith(_ZIP) and any(name.endswith(".npy") for name in _members(data)):
            return Checkpoint(_numpy(data))
        if data.startswith((_ZIP, _PICKLE)):
            return Checkpoint(_torch(data))
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
    """Why torch does not read a checkpoint: of its many words, styled for a terminal, those that say it."""
    words = "".join(char for char in _STYLE.sub("", str(error)) if char.isprintable() or char == "\n")
    if found := _PICKLED.search(words):
        return f"it holds a pickled {found[1] or 'module'}, not tensors; save the model's state_dict()"
    lines = words.rpartition("WeightsUnpickler error:")[2].strip().splitlines()
    return lines[0] if lines else type(error).__name__
