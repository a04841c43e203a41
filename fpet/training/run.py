"""One training run, epoch by epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fpet.backbone import Backbone
from fpet.classes import check_classes
from fpet.data import Dataset
from fpet.errors import DataError, DivergedError, UnsupportedError
from fpet.evaluation import Confusion
from fpet.hardware.graphs import CudaGraphs
from fpet.hardware.room import refuse_excess
from fpet.header import TaskHeader
from fpet.preprocess import Preprocessing
from fpet.task import Task
from fpet.task_checks import check_backbone
from fpet.training.augmentation import augmented
from fpet.training.captured_step import captured
from fpet.training.checkpoint import LOG_COLUMNS, Best, RunState, run_identity
from fpet.training.class_weights import balanced_weights, cross_entropy
from fpet.training.memory import saved_bytes
from fpet.training.mixed_precision import mixed_precision
from fpet.training.parallel import ALONE, Processes
from fpet.training.recipe import Recipe
from fpet.training.start import first_model
from fpet.vit import AdaptedViT
from fpet.words import count

_SEEDS_APART = 1_000_003  # the seeds of two runs' epochs do not meet
_RANKS_APART = 1_000_003**2  # nor those of two processes of a run


@dataclass(frozen=True)
class Trained:
    """A fitted model in evaluation mode, with the weights of the epoch that did best on the validation images.

    epoch: counted from 1; accuracy: on the validation images, 0 to 1, with balanced class weights the mean of the
    classes' own; loss: the mean cross-entropy of these images, with the class weights, in nats.
    seconds: of each epoch, with its validation. memory: in bytes; on a GPU the most that was allocated, else what
    autograd keeps for the backward pass of one step. processes: that shared the run.
    """

    model: AdaptedViT
    epoch: int
    accuracy: float
    loss: float
    seconds: tuple[float, ...]
    memory: int
    processes: int


class Run:
    """Model, optimiser, data on the device, and how far the run has come.

    In a group of processes each has its share of a batch, and its own views, dropout and stochastic depth. All that is
    random follows from the recipe's seed and the epoch, so that nothing random is part of a checkpoint.
    """

    def __init__(
        self,
        header: TaskHeader,
        backbone: Backbone,
        dataset: Dataset,
        recipe: Recipe,
        group: Processes = ALONE,
        *,
        start: Task | None = None,
    ) -> None:
        self.recipe, self.group = recipe, group
        self.preprocessing = header.preprocessing
        check_classes(header, dataset)
        self.steps = len(dataset.train) // recipe.batch_size
        _check_images(dataset, recipe.batch_size, header.preprocessing)
        if recipe.batch_size % group.size:
            raise UnsupportedError(f"a batch of {recipe.batch_size} cannot be shared among {group.size} processes")
        backbone.check_trainable()
        check_backbone(header.name, header, backbone)
        self.device = backbone.device
        self.autocast, self.scaler = mixed_precision(self.device, recipe.precision)
        torch.manual_seed(recipe.seed)
        self.model = first_model(header, backbone, start, recipe.drop_path)
        self.tuned = self.model.trainable()
        self.optimizer = torch.optim.AdamW(self.model.parameter_groups(recipe.weight_decay), lr=recipe.lr, fused=True)
        data, val = dataset.train.resized(header.preprocessing), dataset.val.resized(header.preprocessing)
        self.identity = run_identity(header, recipe, data, val, start)
        self.data, self.val = data.to(self.device), val.to(self.device)
        self.weights = balanced_weights(self.data.targets, len(header.labels)) if recipe.balanced else None
        self.epoch = self.memory = 0
        self.best: Best | None = None
        self.log: list[dict[str, float | None]] = []
        # What replays a step: it is captured when the first batch is known.
        self._graphs = CudaGraphs(self.device) if self.device.type == "cuda" else None
        self._replay: Callable[[Tensor], Tensor] | None = None
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def restore(self, checkpoint: RunState) -> None:
        """Goes back to where a run of the same identity stood."""
        self.tuned.load_state_dict(checkpoint.weights)
        self.optimizer.load_state_dict(checkpoint.optimizer)
        self.scaler.load_state_dict(checkpoint.scaler)
        self.epoch, self.best, self.log = checkpoint.epoch, checkpoint.best, checkpoint.log
        self.memory = checkpoint.memory

    def state(self) -> RunState:
        """Where the run stands."""
        return RunState(
            run=self.identity,
            epoch=self.epoch,
            weights=self.tuned.state_dict(),
            optimizer=self.optimizer.state_dict(),
            best=self.best,
            log=self.log,
            scaler=self.scaler.state_dict(),
            memory=self.memory,
        )

    def result(self) -> Trained:
        """The model with the best weights."""
        assert self.best is not None  # the last epoch is always validated
        best, memory = self.best, self.step_memory()
        seconds = tuple(row["seconds"] or 0.0 for row in self.log)
        self.tuned.load_state_dict(best.weights)
        return Trained(self.model.eval(), best.epoch, best.accuracy, best.loss, seconds, memory, self.group.size)

    def advance(self, on_step: Callable[[], object]) -> None:
        """Trains for one epoch, calling `on_step` after each step, validates if it is time to, and logs both.

        Raises:
            DivergedError: if the loss, on training or validation images, is no longer finite.
        """
        start = time.monotonic()
        lr = self.recipe.learning_rate(self.epoch)
        loss = self._train_epoch(lr, on_step)
        self._refuse_divergence("loss", loss)
        accuracy = val_loss = None
        if self.recipe.validates_after(self.epoch):
            accuracy, val_loss = self._validate()
            self._refuse_divergence("validation loss", val_loss)
            # Few validation images make equal accuracies common: the loss decides between them.
            if self.best is None or (accuracy, -val_loss) > (self.best.accuracy, -self.best.loss):
                weights = {name: value.clone() for name, value in self.tuned.state_dict().items()}
                self.best = Best(self.epoch + 1, accuracy, val_loss, weights)
        self.epoch += 1
        if self.device.type == "cuda":
            self.memory = max(self.memory, torch.cuda.max_memory_allocated(self.device))
        seconds = round(time.monotonic() - start, 3)
        self.log.append(dict(zip(LOG_COLUMNS, (self.epoch, lr, loss, accuracy, val_loss, seconds), strict=True)))

    def step_memory(self) -> int:
        """Bytes: on a GPU the most allocated in an epoch so far, else what autograd keeps for one step's backward."""
        if self.device.type == "cuda":
            return self.memory
        size = self.recipe.batch_size // self.group.size
        images, targets = self.data.images[:size], self.data.targets[:size]
        self.model.train()
        return saved_bytes(lambda: self._loss(images, targets)[0], [*self.model.parameters(), *self.model.buffers()])

    def summary(self) -> dict[str, str]:
        """Epoch, loss and best validation accuracy so far, to be shown."""
        best = "none" if self.best is None else f"{self.best.accuracy:.4f} (epoch {self.best.epoch})"
        return {"epoch": str(self.epoch), "loss": f"{self.log[-1]['loss']:.4f}", "best validation": best}

    def _refuse_divergence(self, what: str, loss: float) -> None:
        if not math.isfinite(loss):
            raise DivergedError(f"training diverged: the {what} of epoch {self.epoch + 1} is {loss}")

    def _train_epoch(self, lr: float, on_step: Callable[[], object]) -> float:
        """One pass over the training images in a random order; returns the mean loss, with the reducer's penalty."""
        seed, size = self.recipe.seed + _SEEDS_APART * (self.epoch + 1), self.recipe.batch_size
        torch.manual_seed(seed)
        order = torch.randperm(len(self.data))[: self.steps * size].to(self.device)
        if self.group.rank:
            torch.manual_seed(seed + _RANKS_APART * self.group.rank)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.model.train()
        total = torch.zeros((), dtype=torch.float32, device=self.device)  # read once an epoch: no step waits for a GPU
        for batch in order.split(size):
            total += self._step(self.group.share(batch))
            on_step()
        self.group.average([total])
        return total.item() / self.steps

    def _step(self, batch: Tensor) -> Tensor:
        """One step of the optimiser on the images of these indices, int64 [B]; returns their loss, []."""
        if self._graphs is not None:
            graphs, self._graphs = self._graphs, None
            self._replay = captured(self._gradients, batch, graphs)
        loss = (self._replay or self._gradients)(batch)
        self.group.average(value.grad for value in self.tuned.parameters() if value.grad is not None)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def _gradients(self, batch: Tensor) -> Tensor:
        """Computes those of the images of these indices, int64 [B]; returns their loss, []."""
        recipe, images = self.recipe, self.data.images[batch]
        images = augmented(images, hflip=recipe.hflip, crop_scale=recipe.crop_scale)
        loss, _, penalty = self._loss(images, self.data.targets[batch])
        loss = loss + penalty
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        return loss.detach()

    @torch.inference_mode()
    def _validate(self) -> tuple[float, float]:
        """Accuracy and mean loss on the validation images."""
        self.model.eval()
        size, answers, losses = self.recipe.batch_size, [], []
        batches = list(zip(self.val.images.split(size), self.val.targets.split(size), strict=True))
        for images, targets in batches:
            loss, logits, _ = self._loss(images, targets)
            answers.append(logits.argmax(dim=1))
            losses.append(loss)
        counts = [len(targets) for _, targets in batches]  # read only now: a GPU need not wait for each batch
        total = sum(loss * count for loss, count in zip(torch.stack(losses).tolist(), counts, strict=True))
        confusion = Confusion(self.val.targets.cpu(), torch.cat(answers).cpu(), logits.shape[1])
        return confusion.balanced_accuracy if self.recipe.balanced else confusion.accuracy, total / len(self.val)

    def _loss(self, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
        """Mean weighted cross-entropy [], logits [B, K] and the reducer's penalty [] of uint8 images [B, 3, H, W]."""
        torch.clear_autocast_cache()  # under an autocast of the caller it would outlive the step, unlike the weights
        with self.autocast:
            tokens, sizes = self.model.encode(self.preprocessing.normalize(images, self.model.backbone.dtype))
            logits = self.model.head(self.model.pool(tokens)).float()
        return cross_entropy(logits, targets, self.weights), logits, self.model.reducer.penalty(sizes)


def _check_images(dataset: Dataset, batch_size: int, preprocessing: Preprocessing) -> None:
    """Raises DataError unless the images are enough to train and to validate, and not too many for the memory."""
    if len(dataset.train) < batch_size:
        raise DataError(
            f"{dataset.name} has {count(len(dataset.train), 'training image')}, fewer than one batch of "
            f"{batch_size}; give a smaller batch size"
        )
    unmade = [split for split in (dataset.train, dataset.val) if not split.is_made(preprocessing)]
    refuse_excess(dataset.name, sum(map(len, unmade)), preprocessing.size)
    if not len(dataset.val):
        raise DataError(f"{dataset.name} has no validation images, on which the epoch is chosen")
