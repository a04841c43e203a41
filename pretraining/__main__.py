"""Command line: fetch the packages, build the images, train, export."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pretraining import dataset, packages
from pretraining.run import Options, Run


def main() -> None:
    """Parses the arguments and runs pre-training to its end."""
    parser = argparse.ArgumentParser(prog="python -m pretraining", description="Pre-trains the embedded backbone.")
    parser.add_argument("--minutes", type=float, default=60, help="wall-clock time to train for (default: 60)")
    parser.add_argument("--batch", type=int, default=64, help="images in a step (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--every", type=float, default=5, help="minutes between checkpoints (default: 5)")
    parser.add_argument("--cache", type=Path, default=Path(".cache/pretraining"), help="downloads and checkpoint")
    parser.add_argument("--output", type=Path, default=Path("weights/backbones/vit-tiny-p8-112.safetensors"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    packages.fetch(arguments.cache)
    images = dataset.load(arguments.cache)
    print(images.describe(), flush=True)
    options = Options(
        minutes=arguments.minutes,
        batch=arguments.batch,
        seed=arguments.seed,
        every=arguments.every,
        checkpoint=arguments.cache / "checkpoint.pt",
        output=arguments.output,
    )
    Run(images, options).train()


if __name__ == "__main__":
    main()
