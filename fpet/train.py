"""Fits a task's adapter, reducer and head to training images; the backbone stays as it is."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from fpet.backbone import Backbone
from fpet.checkpoint import Best, Checkpoint
from fpet.data import Dataset, ResizedSplit
from fpet.errors import DataError, TaskError
from fpet.header import TaskHeader
from fpet.recipe import PRECISIONS, Recipe
from fpet.task import new_model
from fpet.vit import AdaptedViT

_SEEDS_APART = 1_000_003  # the seeds of two runs' epochs do not meet


@dataclass(frozen=True)
class Trained:
    """A fitted model in evaluation mode, with the weights of the epoch that did best on the validation images.

    epoch: counted from 1; accuracy: on the validation images, 0 to 1; loss: their mean cross-entropy, in nats.
    """

    model: AdaptedViT
    epoch: int
    accuracy: float
    loss: float


def train(header: TaskHeader, backbone: Backbone, dataset: Dataset, recipe: Recipe, checkpoint: Path) -> Trained:
    """Trains a fresh model of the task that `header` describes, on the backbone's device.

    The state is written to `checkpoint` after each epoch, its log beside it as CSV. If the file is there the run
    goes on from it; on a CPU the result is then bit for bit that of a run without a break. Test images are never
    looked at. The random state of the process is left as it was.

    Raises:
        DataError: if a picture cannot be read, or there are fewer training images than one batch.
        TaskError: if the checkpoint is damaged or of another run, or the loss is no longer finite.
        UnsupportedError: for methods that do not fit the backbone.
    """
    # All randomness follows from the recipe's seed and the epoch, so that nothing random is part of the checkpoint.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        run = Run(header, backbone, dataset, recipe)
        if checkpoint.exists():
            run.restore(Checkpoint.load(checkpoint, run.identity))
        steps = recipe.epochs * run.steps
        with tqdm(total=steps, initial=run.epoch * run.steps, desc=header.name, unit="step", disable=None) as bar:
            while run.epoch < recipe.epochs:
                run.advance(bar.update)
                run.state().save(checkpoint)
                bar.set_postfix(run.summary())
        return run.result()


class Run:
    """A training run, epoch by epoch: model, optimiser, data on the device, and how far it has come."""

    def __init__(self, header: TaskHeader, backbone: Backbone, dataset: Dataset, recipe: Recipe) -> None:
        self.recipe = recipe
        self.preprocessing = header.preprocessing
        self.steps = len(dataset.train) // recipe.batch_size
        if self.steps == 0:
            raise DataError(f"{dataset.name} has {len(dataset.train)} training images, fewer than one batch")
        device = next(backbone.vit.parameters()).device
        precision = PRECISIONS[recipe.precision]
        self.autocast = torch.autocast(device.type, precision, enabled=precision is not None)
        torch.manual_seed(recipe.seed)
        self.model = new_model(header, backbone, drop_path=recipe.drop_path)
        self.tuned = self.model.trainable().to(device)
        self.optimizer = torch.optim.AdamW(
            self.tuned.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True
        )
        data, val = dataset.train.resized(header.preprocessing), dataset.val.resized(header.preprocessing)
        self.identity = _identity(header, recipe, data, val)
        self.data, self.val = data.to(device), val.to(device)
        self.epoch = 0
        self.best: Best | None = None
        self.log: list[dict[str, float | None]] = []

    def restore(self, checkpoint: Checkpoint) -> None:
        """Goes back to where a run of the same identity stood."""
        self.tuned.load_state_dict(checkpoint.weights)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.epoch, self.best, self.log = checkpoint.epoch, checkpoint.best, checkpoint.log

    def state(self) -> Checkpoint:
        """Where the run stands."""
        weights, optimizer = self.tuned.state_dict(), self.optimizer.state_dict()
        return Checkpoint(self.identity, self.epoch, weights, optimizer, self.best, self.log)

    def result(self) -> Trained:
        """The model with the best weights."""
        assert self.best is not None  # the last epoch is always validated
        self.tuned.load_state_dict(self.best.weights)
        return Trained(self.model.eval(), self.best.epoch, self.best.accuracy, self.best.loss)

    def advance(self, on_step: Callable[[], object]) -> None:
        """Trains for one epoch, calling `on_step` after each step, validates if it is time to, and logs both."""
        start = time.monotonic()
        lr = self.recipe.learning_rate(self.epoch)
        loss = self._train_epoch(lr, on_step)
        if not math.isfinite(loss):
            raise TaskError(f"training diverged: the loss of epoch {self.epoch + 1} is {loss}")
        accuracy = val_loss = None
        if self.recipe.validates_after(self.epoch):
            accuracy, val_loss = self._validate()
            # Few validation images make equal accuracies common: the loss decides between them.
            if self.best is None or (accuracy, -val_loss) > (self.best.accuracy, -self.best.loss):
                weights = {name: value.clone() for name, value in self.tuned.state_dict().items()}
                self.best = Best(self.epoch + 1, accuracy, val_loss, weights)
        self.epoch += 1
        seconds = round(time.monotonic() - start, 3)
        columns = ("epoch", "lr", "loss", "val_accuracy", "val_loss", "seconds")
        self.log.append(dict(zip(columns, (self.epoch, lr, loss, accuracy, val_loss, seconds), strict=True)))

    def summary(self) -> dict[str, str]:
        """Epoch, loss and best validation accuracy so far, to be shown."""
        best = "none" if self.best is None else f"{self.best.accuracy:.4f} (epoch {self.best.epoch})"
        return {"epoch": str(self.epoch), "loss": f"{self.log[-1]['loss']:.4f}", "best validation": best}

    def _train_epoch(self, lr: float, on_step: Callable[[], object]) -> float:
        """One pass over the training images in a random order; returns the mean loss, with the reducer's penalty."""
        torch.manual_seed(self.recipe.seed + _SEEDS_APART * (self.epoch + 1))
        size = self.recipe.batch_size
        order = torch.randperm(len(self.data))[: self.steps * size].to(self.data.images.device)
        self.optimizer.param_groups[0]["lr"] = lr
        self.model.train()
        total = torch.zeros((), device=order.device)  # read once an epoch: a GPU need not wait for each step
        for batch in order.split(size):
            loss, _, penalty = self._loss(self.data.images[batch], self.data.targets[batch])
            loss = loss + penalty
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            on_step()
        return total.item() / self.steps

    @torch.inference_mode()
    def _validate(self) -> tuple[float, float]:
        """Accuracy and mean loss on the validation images."""
        self.model.eval()
        right, total, size = 0, 0.0, self.recipe.batch_size
        for images, targets in zip(self.val.images.split(size), self.val.targets.split(size), strict=True):
            loss, logits, _ = self._loss(images, targets)
            right += int((logits.argmax(dim=1) == targets).sum())
            total += loss.item() * targets.shape[0]
        return right / len(self.val), total / len(self.val)

    def _loss(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
        """Mean cross-entropy [], logits [B, K] and the reducer's penalty [] of uint8 images [B, 3, H, W]."""
        dtype = next(self.model.vit.parameters()).dtype
        with self.autocast:
            tokens, sizes = self.model.encode(self.preprocessing.normalize(images, dtype))
            logits = self.model.head(self.model.pool(tokens)).float()
        return F.cross_entropy(logits, targets), logits, self.model.reducer.penalty(sizes)


def _identity(header: TaskHeader, recipe: Recipe, data: ResizedSplit, val: ResizedSplit) -> str:
    """What determines a run's result, as JSON."""
    digest = hashlib.sha256()
    for tensor in (data.images, data.targets, val.images, val.targets):
        digest.update(tensor.numpy().tobytes())
    described = dataclasses.asdict(dataclasses.replace(header, provenance={}))
    return json.dumps({"task": described, "recipe": dataclasses.asdict(recipe), "pixels": digest.hexdigest()})
