"""`fpet train`: fits one task and writes its file."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from fpet.backbone import Backbone
from fpet.commands import method_options, options
from fpet.data import Dataset
from fpet.errors import TaskError, UnsupportedError
from fpet.evaluate import evaluate
from fpet.header import BackboneRef, HeadSpec, TaskHeader
from fpet.preprocess import Preprocessing
from fpet.provenance import provenance
from fpet.recipe import PRECISIONS, Recipe
from fpet.task import save_task
from fpet.train import train

_DESCRIPTION = """Fits an adapter, a token reduction and a head to the training images of a data set, with the backbone
frozen. The epoch is chosen on the validation images; at the end the test images are classified once and the accuracy
is written into the task file. A killed run continues when the same command is given again. The defaults are the recipe
of the FPET paper."""

_RECIPE_HELP = {
    "epochs": "passes over the training images",
    "batch_size": "images a step",
    "lr": "learning rate of AdamW at the top of the schedule",
    "min_lr": "learning rate at the end of the cosine",
    "warmup_epochs": "epochs of linear warm-up",
    "warmup_lr": "learning rate at the start of the warm-up",
    "weight_decay": "weight decay of AdamW",
    "drop_path": "stochastic depth rate of the last block, 0 to below 1, rising linearly from 0 at the first",
    "validate_every": "epochs between validations",
    "precision": f"of matrix products: {' or '.join(PRECISIONS)}",
    "seed": "of initial weights, order of images, dropout and stochastic depth",
}


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train`."""
    parser = subparsers.add_parser("train", help="fit one task and write its file", description=_DESCRIPTION)
    parser.set_defaults(run=run)
    parser.add_argument("--name", required=True, help="name of the task: a-z, 0-9, '.', '_', '-'")
    parser.add_argument("--output", type=Path, metavar="FILE", help="task file (default: runs/NAME.safetensors)")
    options.add_data(parser, required=True)
    options.add_backbone(parser)
    method_options.add_methods(parser)
    parser.add_argument(
        "--head-bits", type=int, default=32, help="bits a weight of the head: 1, 2, 4, 8 or 32 (default: %(default)s)"
    )
    recipe = parser.add_argument_group("recipe")
    for item in dataclasses.fields(Recipe):
        default = item.default
        recipe.add_argument(
            "--" + item.name.replace("_", "-"),
            type=type(default),
            default=default,
            metavar=type(default).__name__.upper(),
            help=f"{_RECIPE_HELP[item.name]} (default: {default})",
        )


def run(arguments: argparse.Namespace) -> int:
    """Trains, tests once, saves."""
    output = arguments.output or Path("runs", f"{arguments.name}.safetensors")
    if output.exists():
        raise TaskError(f"{output}: there is such a file already; delete it or name another --output")
    recipe = _recipe(arguments)
    backbone = options.backbone(arguments)
    dataset = options.dataset(arguments, arguments.data)
    header = _header(arguments, backbone, dataset)
    checkpoint = output.with_suffix(".checkpoint")
    trained = train(header, backbone, dataset, recipe, checkpoint)
    tested = evaluate(trained.model, dataset.test, header.preprocessing)
    header = dataclasses.replace(header, provenance=provenance(dataset, recipe, trained, tested))
    save_task(output, header, trained.model)
    checkpoint.unlink()
    print(
        f"{output}: epoch {trained.epoch} of {recipe.epochs}, validation accuracy {trained.accuracy:.4f}, "
        f"test accuracy {tested.accuracy:.4f} ({tested.tokens_in} -> {tested.tokens_out} tokens), "
        f"{tested.accuracy_unreduced:.4f} without token reduction"
    )
    return 0


def _recipe(arguments: argparse.Namespace) -> Recipe:
    try:
        return Recipe(**{item.name: getattr(arguments, item.name) for item in dataclasses.fields(Recipe)})
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def _header(arguments: argparse.Namespace, backbone: Backbone, dataset: Dataset) -> TaskHeader:
    vit: Any = backbone.vit
    adapter, reducer = method_options.methods(arguments, backbone.geometry.depth)
    try:
        return TaskHeader(
            name=arguments.name,
            backbone=BackboneRef(backbone.architecture, backbone.arguments, backbone.fingerprint),
            adapter=adapter,
            reducer=reducer,
            labels=dataset.labels,
            # timm's table says how the architecture's images were normalised.
            preprocessing=Preprocessing(
                tuple(vit.patch_embed.img_size), vit.pretrained_cfg["mean"], vit.pretrained_cfg["std"]
            ),
            head=HeadSpec(bits=arguments.head_bits),
        )
    except ValueError as error:
        raise TaskError(str(error)) from error
