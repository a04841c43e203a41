"""Temperature scaling: probabilities that say how often answers are right.

Source: Guo et al., "On Calibration of Modern Neural Networks" (ICML 2017). Logits are divided by one number, which is
fitted to images that did not train the weights. Their order, and so the accuracy, stays.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from fpet.backbone import Backbone
from fpet.classes import check_classes
from fpet.data import Dataset
from fpet.errors import DataError
from fpet.evaluation import logits
from fpet.header import TaskHeader
from fpet.provenance import stated_temperature
from fpet.task import Task

_LEAST, _MOST = 1e-3, 1e3  # inverse temperatures between which the best one is looked for
_HALVINGS = 60
_SCALED = ("head.weight", "head.bias", "head.weight.stats")  # the last of low-bit weights: their mean and deviation


@dataclass(frozen=True)
class Calibrated:
    """A task whose head was divided by a temperature, for `save_tensors`.

    temperature: above 1 if the task was too sure; images: on how many it was fitted; loss_before, loss: the mean
    cross-entropy of these in nats, before and after.
    """

    header: TaskHeader
    tensors: dict[str, Tensor]
    temperature: float
    images: int
    loss_before: float
    loss: float


def calibrate(task: Task, backbone: Backbone, dataset: Dataset, batch_size: int = 64) -> Calibrated:
    """Fits a temperature to the validation images, which are classified with the task's token reduction, and divides
    the head by it: answers, their order and what they cost stay, and their probabilities change.

    The provenance says what the head has been divided by in all.

    Raises:
        TaskError: as `Task.build`.
        DataError: if the classes of the data are not the task's labels; as `fit_temperature`.
        DataError, UnsupportedError: as `evaluation.logits`.
    """
    model = task.build(backbone)
    check_classes(task.header, dataset)
    found = logits(model, dataset.val, task.header.preprocessing, batch_size)
    targets = dataset.val.targets
    temperature = fit_temperature(found, targets)
    before, after = (float(F.cross_entropy(found.double() / each, targets)) for each in (1.0, temperature))
    in_all = temperature * stated_temperature(task.header)
    told = {"value": in_all, "data": dataset.name, "images": len(targets), "loss_before": before, "loss": after}
    header = dataclasses.replace(task.header, provenance={**task.header.provenance, "temperature": told})
    tensors = {name: each / temperature if name in _SCALED else each for name, each in task.tensors.items()}
    return Calibrated(header, tensors, temperature, len(targets), before, after)


def fit_temperature(found: Tensor, targets: Tensor) -> float:
    """The temperature T that minimises the mean cross-entropy of softmax(logits / T).

    It is convex in 1 / T, and its derivative, the mean over images of the expected logit less that of the true class,
    is bisected in float64.

    found: logits, float [N, K]; targets: int64 [N].

    Raises:
        DataError: if there is no such temperature: where all images are answered right, which says nothing of how sure
            an answer should be, or the answers are no better than a guess.
    """
    found = found.double()
    true = found.gather(1, targets[:, None])[:, 0]

    def slope(inverse: float) -> float:
        expected = ((found * inverse).softmax(dim=1) * found).sum(dim=1)
        return float((expected - true).mean())

    if slope(_MOST) <= 0:
        raise DataError(
            f"all {len(targets)} validation images are answered right, which says nothing of how sure to be"
        )
    if slope(_LEAST) >= 0:
        raise DataError("the answers to the validation images are no better than a guess, whatever the temperature")
    low, high = math.log(_LEAST), math.log(_MOST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(math.exp(middle)) > 0 else (middle, high)
    return math.exp(-(low + high) / 2)
