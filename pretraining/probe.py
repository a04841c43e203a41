"""Judges a backbone by what a linear classifier reads off its class token, on validation images alone.

`python -m pretraining.probe FILE --data hebrew emoji`
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from fpet.adapters.none import LinearProbe
from fpet.backbone import Backbone, load_backbone
from fpet.data import SOURCES, Split, load_source
from fpet.reducers import build_reducer
from fpet.tokens import Layout
from fpet.untrained import preprocessing_of
from fpet.vit import AdaptedViT

_STRENGTH = 0.1  # the inverse regularisation C, of features with mean 0 and deviation 1
_BATCH = 50
_ITERATIONS = 1000
_MERGED = {"block": 6, "refine": False}


def main() -> None:
    """Prints a line a data set: per cent of the validation images, with all tokens and with half of them merged."""
    parser = argparse.ArgumentParser(prog="python -m pretraining.probe", description=__doc__.splitlines()[0])
    parser.add_argument("backbone", type=Path, metavar="FILE")
    parser.add_argument("--data", nargs="+", choices=SOURCES, required=True)
    arguments = parser.parse_args()
    backbone = load_backbone(arguments.backbone)
    print("data  all tokens  half merged at block 6")
    for name in arguments.data:
        data = load_source(name)
        found = (100 * accuracy(model, data.train, data.val) for model in models(backbone))
        print(name, *(f"{value:.1f}" for value in found), sep="  ", flush=True)


def models(backbone: Backbone) -> list[AdaptedViT]:
    """The backbone as it is, and with FPET's matching in the middle, without the refinement that a task learns."""
    geometry = backbone.geometry
    reducers = (
        build_reducer(kind, geometry, Layout.of(geometry), arguments)
        for kind, arguments in (("none", {}), ("bdm", _MERGED))
    )
    return [AdaptedViT(backbone, LinearProbe(geometry), reducer, nn.Identity()).eval() for reducer in reducers]


def accuracy(model: AdaptedViT, train: Split, val: Split) -> float:
    """Of logistic regression on the features of the training images, 0 to 1 of the validation images."""
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH, max_iter=_ITERATIONS))
    classifier.fit(features(model, train).numpy(), train.targets.numpy())
    return float(classifier.score(features(model, val).numpy(), val.targets.numpy()))


@torch.inference_mode()
def features(model: AdaptedViT, split: Split) -> Tensor:
    """The embeddings of a split's images, float32 [N, C]."""
    preprocessing = preprocessing_of(model.backbone)
    batches = split.batches(preprocessing, _BATCH)
    return torch.cat([model.features(preprocessing.normalize(images, torch.float32)) for images, _ in batches])


if __name__ == "__main__":
    main()
