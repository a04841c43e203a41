"""A share of the batches runs again without token reduction: what it saves and what it costs, as it is in service."""

from __future__ import annotations

import threading
from typing import Any

import pictures
import pytest
from serving import Files, Serving, serving, small_settings

from service.sampler import Sampler

IMAGES = [pictures.png(seed) for seed in range(28, 40)]  # of some, token reduction changes the label


def savings_of(service: Serving, task: str = "digits") -> dict[str, Any]:
    """What the service tells of a task."""
    tasks = service.client.get("/v1/savings").json()["tasks"]
    (savings,) = [one for one in tasks if one["task"] == task]
    return savings


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.25, 25), (1.0, 100), (0.3, 25)])
def test_the_sampler_samples_the_configured_share(share: float, expected: int) -> None:
    sampler, count = Sampler(share), 0
    for _ in range(100):
        if sampler.due():
            sampler.done()
            count += 1
    assert count == expected


def test_the_sampler_has_one_event_at_a_time() -> None:
    sampler = Sampler(1.0)
    assert sampler.due()
    assert not sampler.due()
    sampler.done()
    assert sampler.due()
    sampler.done()
    assert sampler.due()  # nothing is owed for what was left out


def test_both_ways_are_timed_and_compared(small_files: Files) -> None:
    with serving(small_settings(small_files, shadow_share=1.0, workers=1, max_batch=len(IMAGES))) as service:
        labels = {
            tokens: service.client.post(
                f"/v1/tasks/digits/classify?top_k=1&tokens={tokens}", files=[("image", image) for image in IMAGES]
            ).json()["predictions"]
            for tokens in ("reduced", "full")
        }
        service.until(lambda: bool(savings_of(service)["shadow"]))
        shadow = savings_of(service)["shadow"]
        assert shadow["images"] == len(IMAGES)  # those that were reduced, which are one batch
        assert shadow["reduced_seconds"] > 0
        assert shadow["speedup"] == pytest.approx(shadow["full_seconds"] / shadow["reduced_seconds"])
        both = zip(labels["reduced"], labels["full"], strict=True)
        same = [reduced["label"] == full["label"] for (reduced,), (full,) in both]
        assert 0 < sum(same) < len(same)
        assert shadow["agreement"] == pytest.approx(sum(same) / len(same))


def test_what_has_no_reduction_does_not_run_again(small_files: Files) -> None:
    with serving(small_settings(small_files, shadow_share=1.0)) as service:
        for task in ("plain", "digits"):
            assert service.classify(IMAGES[0], task).status_code == 200
        service.until(lambda: bool(savings_of(service)["shadow"]))  # they run in turn
        assert savings_of(service, "plain")["shadow"] is None


def test_nothing_runs_again_unless_asked(small_files: Files) -> None:
    with serving(small_settings(small_files)) as service:
        assert service.classify(IMAGES[0]).status_code == 200
        assert savings_of(service)["shadow"] is None


def test_one_that_fails_is_not_the_last(small_files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(small_settings(small_files, shadow_share=1.0)) as service:
        failed = threading.Event()

        def fails(*_: object) -> None:
            failed.set()
            raise RuntimeError("not enough memory")

        with monkeypatch.context() as broken:
            broken.setattr(service.runtime.engine, "shadow", fails)
            assert service.classify(IMAGES[0]).status_code == 200
            assert failed.wait(timeout=20)
        service.until(lambda: service.classify(IMAGES[0]).status_code == 200 and bool(savings_of(service)["shadow"]))
