"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch

from fpet.backbone import Backbone, load_backbone
from fpet.commands.tell import tell
from fpet.data import SOURCES, Dataset, Reading, load_dataset, load_source
from fpet.embedded import default_backbone
from fpet.errors import BackboneError, UnsupportedError
from fpet.files import exists
from fpet.hardware.precision import DTYPES, slowness
from fpet.preprocess import Triple
from fpet.timm_download import download_backbone
from fpet.untrained import preprocessing_of
from fpet.vit import check_parity

Value = int | float | bool | str | list[int]

# Before the name of a timm model whose pre-trained weights timm is to fetch.
HUB = "timm:"

_DATA = f"""{", ".join(SOURCES)}; or a folder (./digits if it has one of these names) with one folder of images per
class, or with train/, val/ and test/ of such folders, or with the lists of VTAB-1K or of few-shot splits"""


def add_data(parser: argparse.ArgumentParser, *, required: bool, default: str = "") -> None:
    """Adds --data and what says how to read it, which `dataset` reads."""
    parser.add_argument("--data", required=required, metavar="DATA", help=_DATA + default)
    unpacked = "packages of the named DATA, unpacked (default: this machine's, the cache's, or fetched)"
    parser.add_argument("--data-folder", type=Path, metavar="DIR", help=unpacked)
    add_cache(parser)
    reading = parser.add_argument_group("reading a folder")
    reading.add_argument("--shots", type=int, metavar="N", help="training images per class, for few-shot lists")
    reading.add_argument("--shots-seed", type=int, metavar="N", help="which of the few-shot lists (default: 0)")
    reading.add_argument(
        "--split-seed", type=int, metavar="N", help="splits one folder a class into train, val and test (default: 0)"
    )
    reading.add_argument(
        "--skip-broken", action="store_true", help="leave out and name missing and damaged images instead of refusing"
    )


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Adds --cache."""
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="folder to keep fetched data in (default: ~/.cache/fpet)"
    )


def add_backbone(parser: argparse.ArgumentParser, *, default: str = "the embedded one") -> None:
    """Adds --backbone, --architecture, --architecture-arguments and --device, which `backbone` reads.

    default: what is said of a --backbone that is not given.
    """
    parser.add_argument(
        "--backbone",
        metavar="BACKBONE",
        help=f"file of the frozen Vision Transformer, or {HUB}NAME to have timm fetch its pre-trained weights "
        f"(default: {default})",
    )
    add_architecture(parser)
    parser.add_argument("--device", default="cpu", help="torch device, cpu or cuda[:N] (default: %(default)s)")


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Adds --precision, which `precision` reads."""
    parser.add_argument(
        "--precision",
        choices=list(DTYPES),
        default="float32",
        help="number format of weights and activations in this process (default: %(default)s)",
    )


def add_architecture(parser: argparse.ArgumentParser) -> None:
    """Adds --architecture and --architecture-arguments, which `open_backbone` takes."""
    parser.add_argument(
        "--architecture", metavar="NAME", help="timm's name of the backbone, for a file that does not say it"
    )
    parser.add_argument(
        "--architecture-arguments",
        type=keyword_arguments,
        default={},
        metavar="NAME=VALUE,...",
        help="how timm makes it, such as img_size=384, img_size=224+448 (height, width), or "
        "global_pool=avg,fc_norm=false for mean pooling",
    )


def dataset(arguments: argparse.Namespace, data: str, *, test_alone: bool = False) -> Dataset:
    """Loads `data` as the options of `add_data` say; names on standard error what it skips.

    test_alone: as of `load_dataset`, whose errors it raises.
    """
    loaded = load_dataset(data, arguments.data_folder, arguments.cache, _reading(arguments), test_alone=test_alone)
    for skipped in loaded.skipped:
        tell(f"left out {skipped}")
    return loaded


def source(arguments: argparse.Namespace, name: str) -> Dataset:
    """Loads a named source as the options of `add_data` say; raises as `load_source`."""
    return load_source(name, arguments.data_folder, arguments.cache, _reading(arguments))


def _reading(arguments: argparse.Namespace) -> Reading:
    return Reading(arguments.shots, arguments.shots_seed, arguments.split_seed, arguments.skip_broken)


def backbone(arguments: argparse.Namespace) -> Backbone:
    """Loads --backbone onto --device, and says on standard error if position embeddings were resampled.

    Raises:
        BackboneError: if the file cannot be used, or the installed timm computes it otherwise than the forward does.
        UnsupportedError: if the backbone is not covered, or there is no such device.
    """
    source = str(default_backbone()) if arguments.backbone is None else arguments.backbone
    loaded = open_backbone(source, arguments.architecture, arguments.architecture_arguments)
    if loaded.resampled_from:
        tell(f"{source}: {resampling(loaded)}")
    check_parity(loaded)  # before it is moved: a GPU rounds otherwise
    loaded.move(arguments.device)
    return loaded


def precision(arguments: argparse.Namespace) -> torch.dtype:
    """The type of --precision; says on standard error if --device, which must be usable, does not gain by it."""
    if slow := slowness(arguments.precision, torch.device(arguments.device)):
        tell(f"{slow}; leave out --precision")
    return DTYPES[arguments.precision]


def open_backbone(
    source: str,
    architecture: str | None,
    arguments: Mapping[str, object],
    normalization: Mapping[str, Triple] | None = None,
) -> Backbone:
    """Loads a backbone from a file, or through timm's download if `source` is timm:NAME.

    Raises:
        BackboneError, UnsupportedError: as `load_backbone` and `download_backbone` do.
    """
    if not source.startswith(HUB):
        return load_backbone(Path(source), architecture, arguments, normalization)
    if architecture is not None:
        raise BackboneError(f"{source} names the architecture itself; leave out --architecture")
    return download_backbone(source.removeprefix(HUB), arguments, normalization)


def require_suffix(output: Path, suffix: str, rule: str) -> None:
    """Raises UnsupportedError unless the output's name ends in `suffix`.

    rule: the beginning of what is then said, such as "a task file's name".
    """
    if output.suffix != suffix:
        raise UnsupportedError(f"{output}: {rule} ends in {suffix}")


def refuse_existing(output: Path, instead: str = "", option: str = "--output") -> None:
    """Raises UnsupportedError if there is such a file or folder, or none can be called so: nothing is overwritten.

    instead: what else there is to do about it; option: which names the output.
    """
    if exists(output, UnsupportedError):
        raise UnsupportedError(f"{output}: it is there already; delete it or name another {option}{instead}")


def resampling(backbone: Backbone) -> str:
    """Says which position embeddings were resampled; empty if they lie as in the file."""
    if backbone.resampled_from is None:
        return ""
    old, new = ("x".join(map(str, grid)) for grid in (backbone.resampled_from, backbone.geometry.grid))
    return f"position embeddings resampled from {old} to {new}"


def normalisation(backbone: Backbone) -> str:
    """Says how images are normalised for it: a wrong one would cost accuracy and raise no error."""
    images = preprocessing_of(backbone)
    return "; ".join(f"{name} {','.join(f'{one:g}' for one in getattr(images, name))}" for name in ("mean", "std"))


def positive(text: str) -> int:
    """An integer above 0."""
    with suppress(ValueError):
        if (value := int(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def keyword_arguments(text: str) -> dict[str, Value]:
    """`dim=8,block=4+8` -> {"dim": 8, "block": [4, 8]}; `true` and `false` are truth values, other words stay text."""
    arguments: dict[str, Value] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise argparse.ArgumentTypeError(f"{item!r} is no NAME=VALUE")
        if name in arguments:
            raise argparse.ArgumentTypeError(f"{name} is given twice")
        arguments[name] = _value(value)
    return arguments


def _value(text: str) -> Value:
    if re.fullmatch(r"\d+(\+\d+)+", text):
        return [int(part) for part in text.split("+")]
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text
