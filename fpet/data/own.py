"""A data set of pictures that a program has: in memory, as files, or of another library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Lock
from typing import TypeAlias

import torch
from PIL import Image
from torch import Tensor

from fpet.data.split import Dataset, Images, ImageTensor, Split
from fpet.errors import DataError, ImageError
from fpet.image_files import UNREADABLE, LocalPicture, reason, to_pixels
from fpet.pictures import name_of
from fpet.tensor_names import described

# Pictures and the index of each one's class. Pictures as a tensor are uint8 [N, 3, h, w], or [N, h, w] of grey.
LabelledPictures: TypeAlias = tuple[Sequence[LocalPicture] | Tensor, Sequence[int] | Tensor]


class PictureSequence:
    """Pictures in any form of `LocalPicture` but open files, decoded on access; of a Pillow image that is not loaded
    yet, by one thread at a time, as Pillow asks.
    """

    def __init__(self, pictures: Sequence[LocalPicture]) -> None:
        self._pictures = tuple(pictures)
        self._turns = {id(one): Lock() for one in self._pictures if isinstance(one, Image.Image)}

    def __reduce__(self) -> tuple[type[PictureSequence], tuple[tuple[LocalPicture, ...]]]:
        """As it was made: neither the turns nor what they are by can be copied."""
        return type(self), (self._pictures,)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int, /) -> Tensor:
        picture = self._pictures[index]
        try:
            if hasattr(picture, "read"):
                raise ImageError("an open file can be read only once; give its path or its bytes")
            with self._turns.get(id(picture), nullcontext()):
                return to_pixels(picture)
        except UNREADABLE as error:
            raise DataError(f"cannot read {name_of(picture, index)}: {reason(error)}") from error


def dataset_of(
    name: str, labels: Sequence[str], *, train: LabelledPictures, val: LabelledPictures, test: LabelledPictures
) -> Dataset:
    """Three splits as a data set to train and test on; every picture is decoded once to look it over.

    labels: the class names. train fits the weights, val chooses the epoch, test is looked at once. What is given is
    kept and read again, and must not change: files by their paths, arrays and tensors as they are; targets are copied.

    Raises:
        DataError: if a split is no pair or empty, a picture cannot be read, targets are no indices into the labels or
            not as many as pictures, or two splits share a picture, pixel by pixel.
    """
    if isinstance(labels, str):
        raise DataError(f"labels are a list of names, not the text {labels!r}")
    splits = {
        split: _split(split, given, len(labels)) for split, given in (("train", train), ("val", val), ("test", test))
    }
    digests = {split: _digests(one) for split, one in splits.items()}
    _refuse_shared(digests)
    lines = (
        f"{split} {digest} {target}\n"
        for split, found in digests.items()
        for digest, target in zip(found, splits[split].targets.tolist(), strict=True)
    )
    sha256 = hashlib.sha256("".join(lines).encode()).hexdigest()
    return Dataset(name, tuple(labels), sha256, splits["train"], splits["val"], splits["test"])


def _split(name: str, given: LabelledPictures, classes: int) -> Split:
    if not isinstance(given, tuple) or len(given) != 2:
        raise DataError(f"{name} is a tuple of two, (pictures, targets); of pairs, tuple(zip(*pairs)) is one")
    pictures, targets = given
    if not len(pictures):
        raise DataError(f"no {name} images")
    images: Images = _tensor(pictures) if isinstance(pictures, Tensor) else PictureSequence(pictures)
    try:
        split = Split(images, _whole(targets))
        split.check_targets(classes)
    except (DataError, TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{name}: {error}") from error
    return split


def _whole(targets: Sequence[int] | Tensor) -> Tensor:
    """A copy as int64, if they are whole numbers of any other type."""
    if not isinstance(targets, Tensor) and any(isinstance(one, str) for one in targets):
        raise DataError("targets are the places of labels, from 0, not their names")
    given = torch.as_tensor(targets, device="cpu")
    fractional = given.is_floating_point() or given.is_complex() or given.dtype == torch.bool
    return given.clone() if fractional else given.to(torch.int64, copy=True)


def _tensor(pixels: Tensor) -> ImageTensor:
    shaped = pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[1] == 3)
    if pixels.dtype != torch.uint8 or not shaped or not pixels.numel():
        raise DataError(f"pictures as a tensor are uint8 [N, 3, h, w] or [N, h, w], not {described(pixels)}")
    return ImageTensor(pixels.cpu())


def _digests(split: Split) -> list[str]:
    """SHA-256 of each picture's pixels and size."""

    def digest(index: int) -> str:
        pixels = split.images[index]
        size = f"{list(pixels.shape)}\n".encode()
        return hashlib.sha256(size + pixels.permute(1, 2, 0).contiguous().numpy().tobytes()).hexdigest()

    with ThreadPoolExecutor() as threads:  # decoding holds no lock of Python's
        return list(threads.map(digest, range(len(split))))


def _refuse_shared(digests: Mapping[str, Iterable[str]]) -> None:
    seen: dict[str, tuple[str, int]] = {}
    for split, found in digests.items():
        for index, digest in enumerate(found):
            other, place = seen.setdefault(digest, (split, index))
            if other != split:
                raise DataError(f"{split}[{index}] is the same picture as {other}[{place}]; leave it out of one split")
