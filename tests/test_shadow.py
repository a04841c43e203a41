"""A share of the batches runs again without token reduction: what it saves and what it costs, as it is in service."""

from __future__ import annotations

import dataclasses

import pictures
import pytest
from serving import Files, serving, small_settings, write_task
from small import small_backbone, small_header

from fpet.header import Method
from service.sampler import Sampler

IMAGES = [pictures.png(seed) for seed in range(12)]


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.25, 25), (1.0, 100), (0.3, 25)])
def test_the_share_is_kept(share: float, expected: int) -> None:
    sampler, count = Sampler(share), 0
    for _ in range(100):
        if sampler.due():
            sampler.done()
            count += 1
    assert count == expected


def test_one_is_looked_at_at_a_time() -> None:
    sampler = Sampler(1.0)
    assert sampler.due()
    assert not sampler.due()
    sampler.done()
    assert sampler.due()
    sampler.done()
    assert sampler.due()  # nothing is owed for what was left out


def test_both_ways_are_timed_and_compared(small_files: Files) -> None:
    with serving(small_settings(small_files, shadow_share=1.0)) as service:
        answers = {
            tokens: [service.classify(image, tokens=tokens).json()["predictions"][0][0]["label"] for image in IMAGES]
            for tokens in ("reduced", "full")
        }
        service.until(lambda: service.metric("shadow_agreement_total", task="digits", agree="true") > 0)
        (saving,) = [one for one in service.client.get("/v1/savings").json()["tasks"] if one["task"] == "digits"]
        shadow = saving["shadow"]
        assert 0 < shadow["images"] <= len(IMAGES)  # one batch at a time, and only of those that were reduced
        assert shadow["speedup"] == pytest.approx(shadow["full_seconds"] / shadow["reduced_seconds"])
        assert shadow["reduced_seconds"] > 0
        if shadow["images"] == len(IMAGES):
            same = [a == b for a, b in zip(answers["reduced"], answers["full"], strict=True)]
            assert shadow["agreement"] == pytest.approx(sum(same) / len(same))


def test_it_also_measures_a_reduction_whose_tokens_depend_on_the_image(small_files: Files, tmp_path) -> None:
    backbone = small_backbone()
    header = dataclasses.replace(small_header(backbone, reducer=Method("ltmp", {"target": 0.5})), name="learned")
    write_task(tmp_path / "learned.safetensors", header, backbone)
    with serving(small_settings(Files(small_files.backbone, tmp_path), shadow_share=1.0)) as service:
        assert service.classify(IMAGES[0], "learned").status_code == 200
        service.until(lambda: bool(service.client.get("/v1/savings").json()["tasks"][0]["shadow"]))


def test_nothing_runs_again_unless_asked(small_files: Files) -> None:
    with serving(small_settings(small_files)) as service:
        assert service.classify(IMAGES[0]).status_code == 200
        assert service.client.get("/v1/savings").json()["tasks"][0]["shadow"] is None
