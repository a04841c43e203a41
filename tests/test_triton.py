"""The stock `tritonclient` against the real service: what models are, and the same answers as ours."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from serving import Serving
from triton_inputs import IMAGES, connected, encoded, fp32, tensor, uint8
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

EVERYTHING = ["probabilities", "logits", "embedding", "labels"]


@pytest.fixture(scope="module")
def triton(service: Serving) -> Iterator[InferenceServerClient]:
    with connected(service) as client:
        yield client


def native(service: Serving, tokens: str = "reduced") -> dict[str, Any]:
    """What our own interface answers."""
    body = {"images": [base64.b64encode(data).decode() for data in IMAGES]}
    query = {"outputs": ["probabilities", "logits", "embedding"], "tokens": tokens}
    answer: dict[str, Any] = service.client.post("/v1/tasks/digits/classify", params=query, json=body).json()
    return answer


def test_health(triton: InferenceServerClient) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("digits")
    assert triton.is_model_ready("digits", "1")
    assert not triton.is_model_ready("digits", "2")
    assert not triton.is_model_ready("nothing")


def test_metadata(triton: InferenceServerClient) -> None:
    server = triton.get_server_metadata()
    assert server["name"] == "fpet-serve"
    assert {"binary_tensor_data", "classification", "model_repository", "statistics"} <= set(server["extensions"])
    expected = {
        "name": "digits",
        "versions": ["1"],
        "platform": "fpet",
        "inputs": [{"name": "pixels", "datatype": "UINT8", "shape": [-1, 3, 16, 16]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }
    assert triton.get_model_metadata("digits") == expected
    assert triton.get_model_metadata("digits", "1") == expected


def test_configuration(triton: InferenceServerClient) -> None:
    config = triton.get_model_config("digits")
    assert config == triton.get_model_config("digits", "1")
    assert config["max_batch_size"] == 64
    assert config["input"] == [
        {"name": "pixels", "data_type": "TYPE_UINT8", "format": "FORMAT_NCHW", "dims": [3, 16, 16]}
    ]
    assert config["output"] == [{"name": "probabilities", "data_type": "TYPE_FP32", "dims": [10]}]
    assert config["parameters"]["inputs"] == {"string_value": "image BYTES, pixels UINT8, input FP32"}
    assert config["parameters"]["outputs"] == {"string_value": "probabilities, logits, embedding, labels"}


@pytest.mark.parametrize("binary_output", [True, False], ids=["binary out", "json out"])
@pytest.mark.parametrize("binary_input", [True, False], ids=["binary in", "json in"])
@pytest.mark.parametrize("make", [encoded, uint8, fp32])
def test_answers_equal_those_of_our_own_interface(
    service: Serving,
    triton: InferenceServerClient,
    make: Callable[[bool], InferInput],
    binary_input: bool,
    binary_output: bool,
) -> None:
    parameters = {"content_type": "base64"} if make is encoded and not binary_input else None
    outputs = [InferRequestedOutput(name, binary_data=binary_output) for name in EVERYTHING]
    result = triton.infer("digits", [make(binary_input)], outputs=outputs, request_id="7", parameters=parameters)
    expected = native(service)
    for name in ("probabilities", "logits", "embedding"):
        assert result.as_numpy(name).dtype == np.float32
        np.testing.assert_allclose(result.as_numpy(name), expected[name], atol=1e-5)
    assert [text(label) for label in result.as_numpy("labels")] == [
        best[0]["label"] for best in expected["predictions"]
    ]
    response = result.get_response()
    assert (response["model_name"], response["model_version"], response["id"]) == ("digits", "1", "7")


def text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def test_without_outputs_probabilities_and_labels_come_in_binary(triton: InferenceServerClient) -> None:
    result = triton.infer("plain", [uint8(True)], model_version="1")
    outputs = {one["name"]: one for one in result.get_response()["outputs"]}
    assert list(outputs) == ["probabilities", "labels"]
    assert outputs["probabilities"]["parameters"] == {"binary_data_size": 3 * 3 * 4}
    assert {label.decode() for label in result.as_numpy("labels")} <= {"cat", "dog", "émeu"}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("name", ["probabilities", "logits"])
def test_classification(service: Serving, triton: InferenceServerClient, name: str, binary: bool) -> None:
    outputs = [InferRequestedOutput(name, binary_data=binary, class_count=3)]
    ranked = triton.infer("digits", [uint8(True)], outputs=outputs).as_numpy(name)
    assert ranked.shape == (3, 3)
    expected = native(service)
    for row, best, values in zip(ranked, expected["predictions"], expected[name], strict=True):
        for entry, prediction in zip(row, best, strict=False):
            value, index, label = text(entry).split(":")
            assert (int(index), label) == (prediction["index"], prediction["label"])
            assert float(value) == pytest.approx(values[int(index)], abs=1e-5)


def test_more_classes_than_there_are_labels_are_all(triton: InferenceServerClient) -> None:
    outputs = [InferRequestedOutput("probabilities", class_count=99)]
    ranked = triton.infer("plain", [uint8(True)], outputs=outputs).as_numpy("probabilities")
    assert ranked.shape == (3, 3)
    assert {entry.decode().split(":")[2] for entry in ranked[0]} == {"cat", "dog", "émeu"}


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed_requests(service: Serving, triton: InferenceServerClient, algorithm: str) -> None:
    result = triton.infer("digits", [fp32(True)], request_compression_algorithm=algorithm)
    np.testing.assert_allclose(result.as_numpy("probabilities"), native(service)["probabilities"], atol=1e-5)


def test_tokens_and_timeout_are_parameters(service: Serving, triton: InferenceServerClient) -> None:
    result = triton.infer("digits", [uint8(True)], parameters={"tokens": "full"}, timeout=60_000_000)
    np.testing.assert_allclose(result.as_numpy("probabilities"), native(service, "full")["probabilities"], atol=1e-5)
    with pytest.raises(InferenceServerException) as caught:
        triton.infer("digits", [uint8(True)], timeout=1)
    assert caught.value.status() == "504"


def test_requests_at_once(service: Serving, triton: InferenceServerClient) -> None:
    inputs = [encoded(True), uint8(True), fp32(True)] * 4
    waiting = [triton.async_infer("digits", [one]) for one in inputs]
    results: list[InferResult] = [one.get_result() for one in waiting]
    for result in results:
        np.testing.assert_allclose(result.as_numpy("probabilities"), native(service)["probabilities"], atol=1e-5)


def test_errors_reach_the_client_as_their_sentence(triton: InferenceServerClient) -> None:
    wrong = tensor("pixels", "UINT8", np.zeros((1, 3, 8, 8), np.uint8), True)
    with pytest.raises(InferenceServerException) as caught:
        triton.infer("digits", [wrong])
    assert caught.value.status() == "422"
    assert caught.value.message() == "the input pixels has the shape [1, 3, 8, 8] instead of [images, 3, 16, 16]"
    with pytest.raises(InferenceServerException, match="there is no task 'nothing'"):
        triton.infer("nothing", [uint8(True)])
    with pytest.raises(InferenceServerException, match="'digits' is at version 1, not '4'"):
        triton.infer("digits", [uint8(True)], model_version="4")
    shared = uint8(True)
    shared.set_shared_memory("region", 2304)
    with pytest.raises(InferenceServerException, match="shared_memory_region"):
        triton.infer("digits", [shared])


def test_a_client_that_goes_by_metadata_and_configuration(triton: InferenceServerClient) -> None:
    """As Triton's image client does: it asks for a model's one input and output, and knows nothing else of it."""
    metadata = triton.get_model_metadata(model_name="digits", model_version="")
    config = triton.get_model_config(model_name="digits", model_version="")
    described = parse_model(metadata, config)
    image = Image.open(io.BytesIO(IMAGES[0])).convert("RGB").resize((described.w, described.h), Image.BILINEAR)
    ordered = np.transpose(np.array(image).astype(triton_to_np_dtype(described.dtype)), (2, 0, 1))
    batched = np.stack([ordered, ordered], axis=0)
    inputs = [InferInput(described.input_name, batched.shape, described.dtype)]
    inputs[0].set_data_from_numpy(batched)
    outputs = [InferRequestedOutput(described.output_name, class_count=2)]
    results = triton.infer("digits", inputs, request_id="1", model_version="", outputs=outputs)
    array = results.as_numpy(described.output_name)
    assert array.shape == (2, 2)
    assert array.dtype.type == np.object_
    value, index, label = "".join(chr(x) for x in array[0][0]).split(":")
    assert label == str(int(index))
    assert 0 < float(value) <= 1
    assert array[0].tolist() == array[1].tolist()


def parse_model(metadata: dict[str, Any], config: dict[str, Any]) -> SimpleNamespace:
    """What that client demands of a model."""
    (only_input,), (only_output,), (configured,) = metadata["inputs"], metadata["outputs"], config["input"]
    assert only_output["datatype"] == "FP32"
    assert config["max_batch_size"] > 0
    assert sum(extent > 1 for extent in only_output["shape"][1:]) == 1
    assert len(only_input["shape"]) == 4
    assert configured["format"] == "FORMAT_NCHW"
    _, c, h, w = only_input["shape"]
    assert c == 3
    return SimpleNamespace(
        input_name=only_input["name"], output_name=only_output["name"], h=h, w=w, dtype=only_input["datatype"]
    )
