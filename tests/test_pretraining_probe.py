"""The probe that candidates for the embedded backbone are judged by."""

from __future__ import annotations

import torch

from fpet.backbone import load_backbone
from fpet.data import Dataset
from fpet.embedded import default_backbone
from pretraining import probe


def test_features_tell_digits_apart_with_all_tokens_and_with_half_of_them(digits: Dataset) -> None:
    every, half = probe.models(load_backbone(default_backbone()))
    assert (every.tokens_out, half.tokens_out) == (197, 99)
    found = [probe.features(model, digits.val) for model in (every, half)]
    for features in found:
        assert features.shape == (len(digits.val), 192)
        assert features.dtype == torch.float32
    assert not torch.equal(*found)
    for model in (every, half):
        assert probe.accuracy(model, digits.train, digits.val) > 0.6  # of ten
