"""The probe that candidates for the embedded backbone are judged by."""

from __future__ import annotations

import torch
from small import ARCHITECTURE, ARGUMENTS, small_header

from fpet.backbone import create_backbone, load_backbone
from fpet.data import Dataset
from fpet.embedded import default_backbone
from fpet.header import Method
from fpet.task import new_model
from fpet.untrained import preprocessing_of
from pretraining import probe


def test_images_are_normalised_as_the_backbones_own(digits: Dataset) -> None:
    backbone = create_backbone(ARCHITECTURE, ARGUMENTS, None, {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)})
    model = new_model(small_header(backbone, Method("none"), Method("none")), backbone).eval()
    images = torch.stack([preprocessing_of(backbone).resize(digits.val.images[i]) for i in range(len(digits.val))])
    with torch.inference_mode():
        torch.testing.assert_close(probe.features(model, digits.val), model.features(images / 255))


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
