"""Writes the sample images of `weights/samples/`: the first test image of each class, at its own size.

python -m examples.make_samples fashion-mnist digits
"""

from __future__ import annotations

import argparse

from PIL import Image

from fpet.data import load_dataset
from fpet.weights import embedded


def main() -> None:
    """Writes `<class index>-<position in the test set>.png` for each class of each named data set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="named data sources")
    for name in parser.parse_args().data:
        dataset = load_dataset(name)
        folder = embedded() / "samples" / name
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(len(dataset.labels)):
            position = int((dataset.test.targets == index).nonzero()[0, 0])
            pixels = dataset.test.images[position].permute(1, 2, 0).numpy()
            Image.fromarray(pixels).convert("L").save(folder / f"{index}-{position}.png")


if __name__ == "__main__":
    main()
