"""The training run: as many steps as the time budget holds, resumable, exporting as it goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fpet.backbone import save_vit
from pretraining import augment, model, schedule
from pretraining.dataset import GLYPHS, SOURCES, Images
from pretraining.objective import Objective

# How often an image comes from each source; within a source all images are equally likely.
_SHARES = {GLYPHS: 0.36, "emoji": 0.18, "clip art": 0.16, "stamps": 0.03, "icons": 0.07, "symbols": 0.2}
_ADAMW_RATE, _MUON_RATE = 1e-3, 0.005
_WEIGHT_DECAY = 0.05
_VALIDATED = 1024  # images of the hold-out that are looked at each time


@dataclass(frozen=True)
class Options:
    """architecture: one of `model.ARCHITECTURES`; minutes: budget of wall-clock time; every: minutes between
    checkpoints.
    """

    architecture: str
    device: torch.device
    minutes: float
    batch: int
    seed: int
    every: float
    checkpoint: Path
    output: Path


class Run:
    """State of a run: model, optimiser, and how much of the budget and how many images are spent."""

    def __init__(self, images: Images, options: Options) -> None:
        torch.manual_seed(options.seed)
        self.images, self.options = images, options
        self.device = options.device
        self.vit = model.create(options.architecture, len(images.classes)).to(self.device)
        self.objective = Objective(self.vit).to(self.device)
        self.optimizers = _optimizers(self.vit, self.objective)
        self.seconds, self.steps, self.seen = 0.0, 0, 0
        self.losses: Tensor | None = None  # running means of both losses
        self.accuracy = ""
        if options.checkpoint.is_file():
            self._resume()
        # A resumed run draws other images than it has already drawn.
        self.random = np.random.default_rng((options.seed, self.steps))
        torch.manual_seed(options.seed + self.steps)
        trained = np.flatnonzero(~images.held_out)
        self._by_source = [trained[images.source[trained] == i] for i in range(len(SOURCES))]
        shares = np.array([_SHARES[s] * (len(self._by_source[i]) > 0) for i, s in enumerate(SOURCES)])
        self._shares = shares / shares.sum()
        held_out = np.flatnonzero(images.held_out)
        self._validation = np.random.default_rng(options.seed).permutation(held_out)[:_VALIDATED]

    @property
    def fraction(self) -> float:
        """Part of the budget that is spent."""
        return self.seconds / (60 * self.options.minutes)

    def train(self) -> None:
        """Trains until the budget is spent, then writes the backbone; prints a line a minute."""
        saved = printed = self.seconds
        seen = self.seen
        while self.fraction < 1:
            started = time.monotonic()
            self._step()
            self.seconds += time.monotonic() - started
            if self.seconds - printed >= 60:
                self._print((self.seen - seen) / (self.seconds - printed))
                printed, seen = self.seconds, self.seen
            if self.seconds - saved >= 60 * self.options.every:
                started = time.monotonic()
                self.save()
                self.seconds += time.monotonic() - started
                saved, printed, seen = self.seconds, self.seconds, self.seen
        self.save()

    def save(self) -> None:
        """Validates, writes the checkpoint and exports the backbone as it is."""
        self.accuracy = self._validate()
        print(f"{self.seconds / 60:6.1f} min  hold-out accuracy: {self.accuracy}", flush=True)
        state = {
            "vit": self.vit.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": {"seconds": self.seconds, "steps": self.steps, "seen": self.seen},
        }
        temporary = self.options.checkpoint.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.options.checkpoint)
        architecture = self.options.architecture
        plain = model.without_classifier(architecture, self.vit)
        save_vit(self.options.output, plain, architecture, model.ARGUMENTS, provenance=self._provenance())

    def _resume(self) -> None:
        state = torch.load(self.options.checkpoint, map_location=self.device, weights_only=True)
        self.vit.load_state_dict(state["vit"])
        self.objective.load_state_dict(state["objective"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        progress = state["progress"]
        self.seconds, self.steps, self.seen = progress["seconds"], progress["steps"], progress["seen"]
        print(f"resumed after {self.seconds / 60:.1f} min, {self.seen} images", flush=True)

    def _step(self) -> None:
        now = schedule.phase(self.fraction)
        model.leave_out(self.vit, now.drop)
        rate = schedule.rate(self.fraction)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * rate
        rgba, label = self._draw()
        merged_at = int(self.random.choice(schedule.MERGED_AT)) if self.random.random() < now.merging else None
        with self.device:  # what is random is drawn there
            with torch.no_grad():
                views = augment.augment(rgba, now.size, schedule.strength(self.fraction))
            losses = self.objective(self.vit, views, label, merged_at)
        self.vit.zero_grad()
        self.objective.zero_grad()
        losses.total().backward()
        nn.utils.clip_grad_norm_([*self.vit.parameters(), *self.objective.parameters()], 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.steps, self.seen = self.steps + 1, self.seen + len(label)
        now_lost = torch.stack([losses.label.detach(), losses.sketch.detach()])
        self.losses = now_lost if self.losses is None else self.losses.lerp(now_lost, 0.02)

    def _draw(self) -> tuple[Tensor, Tensor]:
        sources = self.random.choice(len(SOURCES), self.options.batch, p=self._shares)
        chosen = np.array([self.random.choice(self._by_source[source]) for source in sources])
        return self._take(chosen)

    def _take(self, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[Tensor, Tensor]:
        """Pixels uint8 [B, h, w, 4] and labels int64 [B], on the device."""
        pixels = torch.from_numpy(np.ascontiguousarray(self.images.pixels[chosen]))
        return pixels.to(self.device), torch.from_numpy(self.images.label[chosen]).to(self.device)

    @torch.inference_mode()
    def _validate(self) -> str:
        """Accuracy in per cent on plain views of the held-out images, by source, at the present image size."""
        self.vit.eval()
        size = schedule.phase(self.fraction).size
        right = []
        for start in range(0, len(self._validation), self.options.batch):
            rgba, label = self._take(self._validation[start : start + self.options.batch])
            with torch.autocast(self.device.type, torch.bfloat16):
                right.append((self.vit(augment.normalise(rgba, size)).argmax(1) == label).numpy(force=True))
        self.vit.train()
        correct, source = np.concatenate(right), self.images.source[self._validation]
        by_source = [(s, correct[source == i]) for i, s in enumerate(SOURCES) if (source == i).any()]
        return ", ".join(f"{s} {100 * hits.mean():.1f}" for s, hits in [("all", correct), *by_source])

    def _print(self, speed: float) -> None:
        now = schedule.phase(self.fraction)
        label, sketch = (float("nan"),) * 2 if self.losses is None else self.losses.tolist()
        print(
            f"{self.seconds / 60:6.1f} min  {self.steps} steps  {self.seen} images  {speed:.0f} images/s  "
            f"{now.size} px  drop {now.drop}  loss {label:.3f}  sketch {sketch:.3f}",
            flush=True,
        )

    def _provenance(self) -> dict[str, object]:
        return {
            "recipe": "pretraining/README.md",
            "objective": "cross-entropy over classes of characters, emoji, clip art, stamps and symbols; sketches",
            "images": self.images.describe(),
            "images_seen": self.seen,
            "steps": self.steps,
            "batch": self.options.batch,
            "minutes": round(self.seconds / 60, 1),
            "finished": self.fraction >= 1,
            "phases": [[p.until, p.size, p.drop, p.merging] for p in schedule.PHASES],
            "hold_out_accuracy_percent": self.accuracy,
            "seed": self.options.seed,
            "date": date.today().isoformat(),
            "mean": [augment.MEAN] * 3,
            "std": [augment.STD] * 3,
        }


def _optimizers(vit: nn.Module, objective: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks, AdamW for the rest; vectors, positions and the class token do not decay."""
    parameters = dict(vit.named_parameters())
    matrices = [p for n, p in parameters.items() if n.startswith("blocks.") and p.ndim == 2]
    decayed = [parameters[n] for n in ("patch_embed.proj.weight", "head.weight")]
    chosen = {id(p) for p in (*matrices, *decayed)}
    others = [*(p for p in parameters.values() if id(p) not in chosen), *objective.parameters()]
    return [
        torch.optim.Muon([{"params": matrices, "peak": _MUON_RATE}], lr=_MUON_RATE, weight_decay=_WEIGHT_DECAY),
        torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": _WEIGHT_DECAY, "peak": _ADAMW_RATE},
                {"params": others, "weight_decay": 0.0, "peak": _ADAMW_RATE},
            ],
            lr=_ADAMW_RATE,
            betas=(0.9, 0.98),
            fused=True,
        ),
    ]
