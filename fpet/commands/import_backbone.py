"""`fpet import-backbone`: weights of any source as the one kind of file that everything else reads."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from fpet.backbone import Backbone, save_backbone
from fpet.commands import options
from fpet.errors import BackboneError
from fpet.files import read_bytes
from fpet.preprocess import Triple
from fpet.provenance import versions

_DESCRIPTION = f"""Reads a Vision Transformer once and writes a safetensors file that says itself what it is, for
--backbone and for the service. SOURCE is a checkpoint (safetensors or torch: timm, DeiT, DINOv2, CLIP; .npz: the
original ViT), or {options.HUB}NAME, which has timm fetch its pre-trained weights. Position embeddings are resampled to
the image size. A classifier is left out."""


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `import-backbone`."""
    parser = subparsers.add_parser("import-backbone", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("source", metavar="SOURCE", help=f"file, or {options.HUB}NAME")
    options.add_architecture(parser)
    for name in ("mean", "std"):
        parser.add_argument(
            f"--{name}",
            type=_triple,
            metavar="R,G,B",
            help=f"{name} of the images it was trained on, of values 0 to 1 (default: timm's for the architecture)",
        )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="safetensors file to write")


def run(arguments: argparse.Namespace) -> int:
    """Reads, writes, and says what was written."""
    output: Path = arguments.output
    options.require_suffix(output, ".safetensors", "a backbone file's name")  # by which readers tell the format
    options.refuse_existing(output)
    normalization = {name: getattr(arguments, name) for name in ("mean", "std") if getattr(arguments, name)}
    backbone = options.open_backbone(
        arguments.source, arguments.architecture, arguments.architecture_arguments, normalization
    )
    save_backbone(output, backbone, provenance=_provenance(arguments.source, backbone))
    rows, columns = backbone.geometry.grid
    described = f"{backbone.architecture}, {rows}x{columns} patches, {options.resampling(backbone)}".rstrip(", ")
    print(f"{output}: {described}; {options.normalisation(backbone)}; fingerprint {backbone.fingerprint[:12]}")
    return 0


def _provenance(source: str, backbone: Backbone) -> dict[str, object]:
    provenance: dict[str, object] = {"versions": versions()}
    if source.startswith(options.HUB):
        provenance["source"] = source
    else:
        provenance["source"] = Path(source).name
        provenance["sha256"] = hashlib.sha256(read_bytes(Path(source), BackboneError)).hexdigest()
    if backbone.resampled_from:
        provenance["resampled_from"] = list(backbone.resampled_from)
    return provenance


def _triple(text: str) -> Triple:
    """`0.5,0.5,0.5` -> three numbers."""
    try:
        red, green, blue = (float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers such as 0.5,0.5,0.5") from error
    return red, green, blue
