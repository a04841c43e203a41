"""Command line: fetch the packages, build the images, train, export."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from pretraining import dataset, model, packages
from pretraining.run import Options, Run

EMBEDDED = Path("weights/backbones/vit-tiny-p8-112.safetensors")


def main() -> None:
    """Parses the arguments and runs pre-training to its end."""
    parser = argparse.ArgumentParser(prog="python -m pretraining", description="Pre-trains the embedded backbone.")
    parser.add_argument(
        "--architecture", choices=model.ARCHITECTURES, default=model.ARCHITECTURES[0], help="(default: %(default)s)"
    )
    parser.add_argument("--device", type=torch.device, default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=60, help="wall-clock time to train for (default: 60)")
    parser.add_argument("--batch", type=int, default=64, help="images in a step (default: 64)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    parser.add_argument("--every", type=float, default=5, help="minutes between checkpoints (default: 5)")
    parser.add_argument("--cache", type=Path, default=Path(".cache/pretraining"), help="downloads and checkpoint")
    parser.add_argument("--output", type=Path, help=f"(default: {EMBEDDED}, for its architecture alone)")
    arguments = parser.parse_args()
    architecture = arguments.architecture
    if arguments.output is None and architecture != model.ARCHITECTURES[0]:
        parser.error(f"--output is needed for {architecture}: the embedded backbone is another")
    torch.set_num_threads(arguments.threads)
    packages.fetch(arguments.cache)
    images = dataset.load(arguments.cache)
    print(images.describe(), flush=True)
    options = Options(
        architecture=architecture,
        device=arguments.device,
        minutes=arguments.minutes,
        batch=arguments.batch,
        seed=arguments.seed,
        every=arguments.every,
        checkpoint=arguments.cache / f"checkpoint-{architecture}.pt",
        output=arguments.output or EMBEDDED,
    )
    Run(images, options).train()


if __name__ == "__main__":
    main()
