"""What is asked of the features: the class, and the image's sketch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretraining.merging import features, pooled
from pretraining.sketch import DIM, sketch

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer

_SMOOTHING = 0.05
_SKETCH_WEIGHT = 4.0


@dataclass(frozen=True)
class Losses:
    """Scalars, means over the class token and the mean of the patch tokens.

    label: cross-entropy; sketch: the part of the sketches' variance that is not explained, 0 to about 1.
    """

    label: Tensor
    sketch: Tensor

    def total(self) -> Tensor:
        """What is minimised."""
        return 2 * (self.label + _SKETCH_WEIGHT * self.sketch)


class Objective(nn.Module):
    """Asks both the class token and the mean of the patch tokens: so all tokens carry the answer, not one alone."""

    def __init__(self, vit: VisionTransformer) -> None:
        super().__init__()
        self.draw = nn.Linear(vit.embed_dim, DIM)

    def forward(self, vit: VisionTransformer, views: Tensor, label: Tensor, merged_at: int | None) -> Losses:
        """Views [B, 3, S, S] in [-1, 1], labels int64 [B]; merged_at: as of `features`."""
        target = sketch(views)
        variance = target.var(dim=0).mean()
        with torch.autocast(views.device.type, torch.bfloat16):
            both = pooled(features(vit, views, merged_at), vit.num_prefix_tokens)
            answers = [(vit.head(x).float(), self.draw(x).float()) for x in both]
        labels = [F.cross_entropy(logits, label, label_smoothing=_SMOOTHING) for logits, _ in answers]
        sketches = [F.mse_loss(drawn, target) / variance for _, drawn in answers]
        return Losses(torch.stack(labels).mean(), torch.stack(sketches).mean())
