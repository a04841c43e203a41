"""A data set of pictures that a program has: in memory, as files, or of another library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fpet.data.split import Dataset, Images, ImageTensor, Split
from fpet.errors import DataError
from fpet.image_files import UNREADABLE, reason, to_pixels
from fpet.pictures import Picture, name_of
from fpet.tensor_names import described

# Pictures and the index of each one's class. Pictures as a tensor are uint8 [N, 3, h, w], or [N, h, w] of grey.
LabelledPictures: TypeAlias = tuple[Sequence[Picture] | Tensor, Sequence[int] | Tensor]


@dataclass(frozen=True)
class PictureSequence:
    """Pictures in any form of `Picture`, decoded on access."""

    pictures: Sequence[Picture]

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int, /) -> Tensor:
        picture = self.pictures[index]
        try:
            return to_pixels(picture)
        except UNREADABLE as error:
            raise DataError(f"cannot read {name_of(picture, index)}: {reason(error)}") from error


def dataset_of(
    name: str, labels: Sequence[str], *, train: LabelledPictures, val: LabelledPictures, test: LabelledPictures
) -> Dataset:
    """Three splits as a data set to train and test on; every picture is decoded once to look it over.

    labels: the class names. train fits the weights, val chooses the epoch, test is looked at once. Files are read from
    their paths again whenever they are needed; an open file, which can be read only once, is no picture here.

    Raises:
        DataError: if a split is empty, a picture cannot be read, targets are no indices into the labels or not as many
            as pictures, or two splits share a picture, pixel by pixel.
    """
    splits = {split: _split(split, *given) for split, given in (("train", train), ("val", val), ("test", test))}
    digests = {split: _digests(one) for split, one in splits.items()}
    _refuse_shared(digests)
    lines = (f"{split} {digest}\n" for split, found in digests.items() for digest in found)
    sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Dataset(name, tuple(labels), sha256, splits["train"], splits["val"], splits["test"])


def _split(name: str, pictures: Sequence[Picture] | Tensor, targets: Sequence[int] | Tensor) -> Split:
    if not len(pictures):
        raise DataError(f"no {name} images")
    images: Images = _tensor(pictures) if isinstance(pictures, Tensor) else PictureSequence(pictures)
    try:
        return Split(images, torch.as_tensor(targets, device="cpu"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"the {name} targets are no integers: {error}") from error


def _tensor(pixels: Tensor) -> ImageTensor:
    if pixels.dtype != torch.uint8 or not (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[1] == 3)):
        raise DataError(f"pictures as a tensor are uint8 [N, 3, h, w] or [N, h, w], not {described(pixels)}")
    return ImageTensor(pixels.cpu())


def _digests(split: Split) -> list[str]:
    """SHA-256 of each picture's pixels and size, with its target."""

    def digest(index: int) -> str:
        pixels = split.images[index]
        size = f"{list(pixels.shape)}\n".encode()
        return hashlib.sha256(size + pixels.permute(1, 2, 0).contiguous().numpy().tobytes()).hexdigest()

    with ThreadPoolExecutor() as threads:  # decoding holds no lock of Python's
        found = threads.map(digest, range(len(split)))
        return [f"{one} {target}" for one, target in zip(found, split.targets.tolist(), strict=True)]


def _refuse_shared(digests: Mapping[str, Iterable[str]]) -> None:
    seen: dict[str, str] = {}
    for split, found in digests.items():
        for index, line in enumerate(found):
            digest = line.partition(" ")[0]
            place = seen.setdefault(digest, f"{split}[{index}]")
            if not place.startswith(f"{split}["):
                raise DataError(f"{split}[{index}] is the same picture as {place}; leave it out of one split")
