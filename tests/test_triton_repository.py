"""The stock `tritonclient` against services of its own: statistics, and models that are loaded and unloaded."""

from __future__ import annotations

import numpy as np
import pytest
from serving import ADMIN, KEY, Files, serving, small_settings
from triton_inputs import IMAGES, connected, encoded, tensor, uint8
from tritonclient.utils import InferenceServerException


def test_statistics_are_those_of_what_was_asked(small_files: Files) -> None:
    with serving(small_settings(small_files)) as fresh, connected(fresh) as client:
        (unused,) = client.get_inference_statistics("plain")["model_stats"]
        assert (unused["inference_count"], unused["last_inference"]) == (0, 0)
        for _ in range(2):
            client.infer("digits", [encoded(True)])
        client.infer("digits", [uint8(True)])
        with pytest.raises(InferenceServerException):
            client.infer("digits", [tensor("image", "BYTES", np.array([b"bad"], dtype=np.object_), True)])
        assert fresh.classify(IMAGES[0]).status_code == 200  # our own interface counts too
        (stats,) = client.get_inference_statistics("digits", "1")["model_stats"]
        assert (stats["name"], stats["version"], stats["inference_count"]) == ("digits", "1", 3 * len(IMAGES) + 1)
        assert stats["execution_count"] == fresh.metric("batch_size_count") >= 3
        inferences = stats["inference_stats"]
        assert (inferences["success"]["count"], inferences["fail"]["count"]) == (4, 1)
        stages = [inferences[stage] for stage in ("compute_input", "queue", "compute_infer")]
        assert all(stage["count"] == 4 and stage["ns"] > 0 for stage in stages)
        assert sum(stage["ns"] for stage in stages) <= inferences["success"]["ns"] < 60e9
        seconds = fresh.metric("stage_seconds_total", stage="inference", task="digits")
        assert inferences["compute_infer"]["ns"] == round(1e9 * seconds)
        assert stats["last_inference"] > 1.7e12
        everything = client.get_inference_statistics()["model_stats"]
        assert [one["name"] for one in everything] == ["digits", "plain"]
        several = {"content": IMAGES[0], "headers": {"content-type": "image/png"}}
        assert fresh.client.post("/v1/classify?tasks=digits,plain", **several).status_code == 200
        both = client.get_inference_statistics()["model_stats"]
        assert [one["inference_count"] for one in both] == [3 * len(IMAGES) + 2, 1]


def test_models_are_loaded_and_unloaded_with_the_key(files: Files) -> None:
    with serving(small_settings(files, admin_key=KEY, watch=False)) as running, connected(running) as client:
        ready = {"name": "digits", "version": "1", "state": "READY", "reason": ""}
        assert client.get_model_repository_index()[0] == ready
        for change in (client.unload_model, client.load_model):
            with pytest.raises(InferenceServerException) as caught:
                change("digits")
            assert caught.value.status() == "401"
            with pytest.raises(InferenceServerException) as caught:
                change("digits", headers={"Authorization": f"Bearer {KEY}x"})
            assert caught.value.status() == "403"
        assert client.get_model_repository_index()[0] == ready
        client.unload_model("digits", headers=ADMIN)
        assert not client.is_model_ready("digits")
        unloaded = {"name": "digits", "state": "UNAVAILABLE", "reason": "unloaded"}
        assert client.get_model_repository_index()[0] == unloaded
        client.load_model("digits", headers=ADMIN)
        assert client.is_model_ready("digits", "2")
        assert client.infer("digits", [uint8(True)]).get_response()["model_version"] == "2"
        (files.tasks / "digits.safetensors").write_bytes(b"no task")
        with pytest.raises(InferenceServerException, match=r"digits.safetensors: not a complete safetensors file"):
            client.load_model("digits", headers=ADMIN)
        assert client.infer("digits", [uint8(True)]).get_response()["model_version"] == "2"
        with pytest.raises(InferenceServerException, match=r"parameters.config: there is no such field"):
            client.load_model("digits", headers=ADMIN, config="{}")
        with pytest.raises(InferenceServerException, match="there is no task 'nothing'"):
            client.load_model("nothing", headers=ADMIN)
