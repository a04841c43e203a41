"""How a task is fitted: the numbers of the optimisation and its learning rate schedule."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fpet.hardware.precision import DTYPES
from fpet.json_values import is_finite
from fpet.training.class_weights import CLASS_WEIGHTS
from fpet.words import count

_WHOLE = ("epochs", "batch_size", "validate_every", "warmup_epochs", "seed")
_REAL = ("lr", "min_lr", "warmup_lr", "weight_decay", "drop_path", "hflip", "crop_scale")
# The values that change nothing of what came later than the rest.
OFF: dict[str, Any] = {"hflip": 0.0, "crop_scale": 1.0, "class_weights": CLASS_WEIGHTS[0]}
_WARM_UP = 10  # epochs, the most unless others are given
_RAMP = 20  # epochs of a training, of which a tenth is a ramp
# Whole numbers are below it. torch takes seeds of up to twice as much, and seeds of epochs and processes lie above the
# recipe's.
_LIMIT = 2**63

T = TypeVar("T")


def _described(default: T, text: str, shown: str = "") -> T:
    """A field with its default, and what the command line says of it; shown: the default in words."""
    return field(default=default, metadata={"help": text, "default": shown or default})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of one training run; the defaults are FPET's for VTAB-1K, save that validation images choose the
    epoch, and are looked at twice as often. Of pixels it says nothing: they are normalised as the backbone's were;
    FPET's authors leave them between 0 and 1.

    AdamW on cross-entropy, no augmentation unless `hflip` or `crop_scale` is given, the incomplete last batch of an
    epoch left out. class_weights: with "balanced" the loss of an image is weighted by `balanced_weights` of the
    training images, and the epoch is chosen by the mean of the classes' accuracies. warmup_epochs: if it is not given,
    `warmup` is a tenth of the epochs, as 10 with 100, and no more than 10; none with fewer than 20 epochs, as one epoch
    has no rates between the lowest and the highest. precision: with "bfloat16" and "float16" products are rounded by
    autocast, with "float16" gradients are scaled too; weights and optimiser are float32. The last epoch is always
    validated. Whole numbers are below 2**63.

    Raises:
        ValueError: if a number is out of its range or none, or no whole number where one is due.
    """

    epochs: int = _described(100, "passes over the training images")
    batch_size: int = _described(64, "images a step")
    lr: float = _described(1e-3, "learning rate of AdamW at the top of the schedule")
    min_lr: float = _described(1e-5, "learning rate at the end of the cosine")
    warmup_epochs: int | None = _described(
        None, "epochs of linear warm-up", f"a tenth of --epochs, at most {_WARM_UP}, none below {_RAMP} epochs"
    )
    warmup_lr: float = _described(1e-6, "learning rate at the start of the warm-up")
    weight_decay: float = _described(1e-4, "weight decay of AdamW")
    drop_path: float = _described(
        0.1, "stochastic depth rate of the last block, 0 to below 1, rising linearly from 0 at the first"
    )
    hflip: float = _described(
        OFF["hflip"], "probability that a training image is mirrored left to right; not for text, digits or directions"
    )
    crop_scale: float = _described(
        OFF["crop_scale"], "least share of a training image's area, above 0, that a random crop keeps; 1 for no crops"
    )
    class_weights: str = _described(
        OFF["class_weights"],
        "balanced: few images of a class count as much as many of another, in the loss and in the choice of the epoch",
    )
    validate_every: int = _described(5, "epochs between validations")
    precision: str = _described(
        "float32", f"number format of matrix products: {', '.join(DTYPES)}; float16 on a GPU only"
    )
    seed: int = _described(0, "random seed of initial weights, order and views of images, dropout and stochastic depth")

    def __post_init__(self) -> None:
        _require_whole("epochs", self.epochs)  # by which the warm-up goes
        numbers = self.numbers()
        for name in _WHOLE:
            _require_whole(name, numbers[name])
        for name in _REAL:
            _require_finite(name, numbers[name])
        for name in ("epochs", "batch_size", "validate_every", "lr"):
            if not numbers[name] > 0:
                raise ValueError(f"{name} = {numbers[name]} should be above 0")
        for name in ("min_lr", "warmup_epochs", "warmup_lr", "weight_decay", "seed"):
            if not numbers[name] >= 0:
                raise ValueError(f"{name} = {numbers[name]} should not be below 0")
        if not 0 <= self.drop_path < 1:
            raise ValueError(f"drop_path = {self.drop_path} should be in [0, 1)")
        if not 0 <= self.hflip <= 1:
            raise ValueError(f"hflip = {self.hflip} should be in [0, 1]")
        if not 0 < self.crop_scale <= 1:
            raise ValueError(f"crop_scale = {self.crop_scale} should be in (0, 1]")
        for name in _WHOLE:
            if numbers[name] >= _LIMIT:
                raise ValueError(f"{name} = {numbers[name]} should be below 2**63")
        _require_one_of("precision", self.precision, tuple(DTYPES))
        _require_one_of("class_weights", self.class_weights, CLASS_WEIGHTS)
        self._check_schedule()

    def _check_schedule(self) -> None:
        """Raises ValueError if the schedule would fall where it is to rise, or rise where it is to fall."""
        for name, used in (("min_lr", True), ("warmup_lr", self.warmup > 0)):
            if used and getattr(self, name) > self.lr:
                raise ValueError(f"{name} = {getattr(self, name)} should not be above lr = {self.lr}")

    @property
    def warmup(self) -> int:
        """Epochs of linear warm-up: those that are given, or else by the number of epochs."""
        if self.warmup_epochs is not None:
            return self.warmup_epochs
        return min(_WARM_UP, self.epochs // 10) if self.epochs >= _RAMP else 0

    @property
    def balanced(self) -> bool:
        """Whether classes count alike, however many images each has."""
        return self.class_weights == "balanced"

    def numbers(self) -> dict[str, Any]:
        """All fields by their names, with the warm-up as a number."""
        return dataclasses.asdict(self) | {"warmup_epochs": self.warmup}

    def identity(self) -> dict[str, Any]:
        """What tells runs apart: `numbers`, but none of what changes nothing, as before it was there."""
        return {name: value for name, value in self.numbers().items() if value != OFF.get(name)}

    def learning_rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0: linear warm-up, then a cosine.

        As in the authors' runs the schedule lags by one epoch (epochs 0 and 1 are equal) and the cosine counts the
        warm-up's epochs: behind a warm-up `lr` itself is never reached.
        """
        t = max(epoch - 1, 0)
        if t < self.warmup:
            return self.warmup_lr + t * (self.lr - self.warmup_lr) / self.warmup
        return self.min_lr + (self.lr - self.min_lr) * (1 + math.cos(math.pi * t / self.epochs)) / 2

    @property
    def caution(self) -> str:
        """Says that the warm-up is not over when the training is, so that little is learned; else empty."""
        if max(self.epochs - 2, 0) >= self.warmup:
            return ""
        highest = self.learning_rate(self.epochs - 1)
        return (
            f"the warm-up of {count(self.warmup, 'epoch')}, which comes after the first, is not over after "
            f"{self.epochs} of training: the learning rate stays below {self.lr:g}, at most {highest:.2g}"
        )

    def validates_after(self, epoch: int) -> bool:
        """Whether the weights are validated after this epoch, counted from 0."""
        return (epoch + 1) % self.validate_every == 0 or epoch + 1 == self.epochs


def _require_whole(name: str, value: object) -> None:
    if type(value) is not int:
        raise ValueError(f"{name} = {value!r} should be a whole number")


def _require_one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} = {value!r} should be one of {', '.join(known)}")


def _require_finite(name: str, value: Any) -> None:
    if type(value) not in (int, float):
        raise ValueError(f"{name} = {value!r} should be a number")
    if not is_finite(value):
        raise ValueError(f"{name} = {value} should be finite")
