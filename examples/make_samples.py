"""Writes the sample images of `weights/samples/`: the first test images of each class, of at most 224x224 pixels.

python -m examples.make_samples fashion-mnist digits
"""

from __future__ import annotations

import argparse
import math

import torch
from PIL import Image
from torch import Tensor

from fpet.data import load_dataset
from fpet.embedded import embedded

_AT_LEAST = 10  # of each task
_LARGEST = 224


def main() -> None:
    """Writes `<class index>-<position in the test set>.png`, as many of each class, for each named data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="named data sources")
    for name in parser.parse_args().data:
        dataset = load_dataset(name)
        folder = embedded() / "samples" / name
        folder.mkdir(parents=True, exist_ok=True)
        each = math.ceil(_AT_LEAST / len(dataset.labels))
        for index in range(len(dataset.labels)):
            for position in (dataset.test.targets == index).nonzero()[:each, 0].tolist():
                picture(dataset.test.images[position]).save(folder / f"{index}-{position}.png")


def picture(pixels: Tensor) -> Image.Image:
    """Of uint8 [3, h, w]; grey if the three are equal."""
    grey = torch.equal(pixels[0], pixels[1]) and torch.equal(pixels[0], pixels[2])
    image = Image.fromarray(pixels[0].numpy() if grey else pixels.permute(1, 2, 0).numpy())
    image.thumbnail((_LARGEST, _LARGEST))
    return image


if __name__ == "__main__":
    main()
