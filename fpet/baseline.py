"""What a linear classifier on raw pixels reaches: the bar that a pre-trained backbone has to clear."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fpet.data import Dataset
from fpet.errors import DataError
from fpet.preprocess import Preprocessing

_STRENGTHS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_MAX_ITERATIONS = 5000
_TOLERANCE = 1e-9  # less exact, the rounding of a processor or of its number of threads decides about images
_SIDE = 64  # pixels, where the pictures are larger, or not all of one size


@dataclass(frozen=True)
class Baseline:
    """Logistic regression on pixels.

    strength: the inverse regularisation C that did best on the validation images; accuracies from 0 to 1.
    """

    images: int
    accuracy: float
    validation_accuracy: float
    strength: float


def check_baseline(dataset: Dataset) -> None:
    """Raises DataError without training images, or without scikit-learn: before other work, not after it."""
    if not len(dataset.train):
        raise DataError(f"{dataset.name} has no training images to fit the baseline on")
    _logistic_regression()


def _logistic_regression() -> Any:
    try:
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    except ImportError as error:
        raise DataError("the raw-pixel baseline needs scikit-learn: pip install scikit-learn") from error
    return LogisticRegression(max_iter=_MAX_ITERATIONS, tol=_TOLERANCE, solver="newton-cg", warm_start=True)


def raw_pixel_baseline(dataset: Dataset) -> Baseline:
    """Fits on the training images, pixels in [0, 1], and tests on the test images.

    Pictures have the source's resolution, or 64x64 pixels if they are larger or not all of one size.

    Raises:
        DataError: as `check_baseline`, or if a picture cannot be read.
    """
    check_baseline(dataset)
    train, val, test = _pixels(dataset)
    if (train == train[:, :1]).all():  # grey: three equal channels would only weaken the regularisation
        train, val, test = train[:, :1], val[:, :1], test[:, :1]
    inputs, val_inputs, test_inputs = _spanned(train.flatten(1), val.flatten(1), test.flatten(1))
    model = _logistic_regression()
    targets = dataset.train.targets.numpy()
    models = [copy.deepcopy(model.set_params(C=strength).fit(inputs, targets)) for strength in _STRENGTHS]
    scores = [float(fit.score(val_inputs, dataset.val.targets.numpy())) for fit in models]
    best = max(range(len(models)), key=scores.__getitem__)
    return Baseline(
        images=len(dataset.test),
        accuracy=float(models[best].score(test_inputs, dataset.test.targets.numpy())),
        validation_accuracy=scores[best],
        strength=_STRENGTHS[best],
    )


def _spanned(train: Tensor, *others: Tensor) -> list[Any]:
    """Images [N, D] as coordinates in the space of the training images, if those are fewer than D.

    The weights of least norm lie in it, so the classifier is the same, of fewer numbers.
    """
    if len(train) >= train.shape[1]:
        return [images.numpy() for images in (train, *others)]
    basis = torch.linalg.qr(train.mT).Q
    return [(images @ basis).numpy() for images in (train, *others)]


def _pixels(dataset: Dataset) -> list[Tensor]:
    """Of the three splits, float64 [N, 3, h, w] in [0, 1]: fitted in float32, a processor's rounding would decide."""
    splits = (dataset.train, dataset.val, dataset.test)
    # Decoded twice, so that large pictures are never held all at once.
    sizes = {split.images[i].shape for split in splits for i in range(len(split))}
    small = len(sizes) == 1 and all(max(size) <= _SIDE for size in sizes)
    resizing = None if small else Preprocessing((_SIDE, _SIDE))

    def pixels(image: Tensor) -> Tensor:
        return image if resizing is None else resizing.resize(image)

    return [torch.stack([pixels(split.images[i]) for i in range(len(split))]).double() / 255 for split in splits]
