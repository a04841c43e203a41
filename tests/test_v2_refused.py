"""The Open Inference Protocol asked wrongly, by hand over real HTTP: every refusal is a sentence."""

from __future__ import annotations

import gzip
import json
import math
import random

import pytest
import torch
from inference_requests import (
    BINARY,
    BYTES,
    ELEMENTS,
    ENCODED,
    FP32,
    GOOD,
    INFER,
    PACKED,
    PIXELS,
    TEXT,
    send,
)
from serving import Serving

BAD = [
    ({"inputs": []}, 422, "0 inputs; send one of image, pixels, input"),
    ({"inputs": [GOOD, ENCODED]}, 422, "2 inputs; send one of"),
    ({"inputs": [GOOD] * 17}, 422, "inputs: List should have at most 16 items"),
    ({}, 422, "inputs: Field required"),
    ([], 422, "Input should be an object"),
    ({"inputs": None}, 422, "inputs: Field required"),
    ({"inputs": [GOOD], "model": None}, 422, "model: there is no such field"),
    ({"inputs": [GOOD], "model_name": 7}, 422, "model_name: Input should be a valid string"),
    ({"inputs": [GOOD], "id": 7}, 422, "id: Input should be a valid string"),
    ({"inputs": [{**GOOD, "name": "images"}]}, 422, "there is no input 'images'; send one of image, pixels, input"),
    ({"inputs": [{**GOOD, "datatype": "FP32"}]}, 422, "the input pixels is UINT8, not 'FP32'"),
    ({"inputs": [{**FP32, "datatype": "FP16", "data": [0.0]}]}, 422, "the input input is FP32, not 'FP16'"),
    ({"inputs": [{**GOOD, "shape": [3, 16, 16]}]}, 422, "shape [3, 16, 16] instead of [images, 3, 16, 16]"),
    ({"inputs": [{**GOOD, "shape": [1, 16, 16, 3]}]}, 422, "instead of [images, 3, 16, 16]"),
    ({"inputs": [{**GOOD, "shape": [0, 3, 16, 16], "data": []}]}, 422, "instead of [images, 3, 16, 16]"),
    ({"inputs": [{**GOOD, "shape": [-1, 3, 16, 16]}]}, 422, "instead of [images, 3, 16, 16]"),
    ({"inputs": [{**GOOD, "shape": []}]}, 422, "has the shape [] instead of"),
    ({"inputs": [{**GOOD, "shape": [1.0, 3, 16, 16]}]}, 422, "inputs.0.shape.0: Input should be a valid integer"),
    ({"inputs": [{**GOOD, "shape": ["1", 3, 16, 16]}]}, 422, "inputs.0.shape.0: Input should be a valid integer"),
    ({"inputs": [{**ENCODED, "shape": [1, 2]}]}, 422, "the input image has the shape [1, 2] instead of [images]"),
    ({"inputs": [{**GOOD, "shape": [65, 3, 16, 16]}]}, 413, "more than 64 images"),
    ({"inputs": [{**GOOD, "shape": [10**30, 3, 16, 16]}]}, 413, "more than 64 images"),
    ({"inputs": [{**GOOD, "shape": [2, 3, 16, 16]}]}, 422, "has 768 values; its shape asks for 1536"),
    ({"inputs": [{**GOOD, "data": [1]}]}, 422, "has 1 values; its shape asks for 768"),
    ({"inputs": [{**GOOD, "data": []}]}, 422, "has 0 values; its shape asks for 768"),
    ({"inputs": [PIXELS]}, 422, "the input pixels has neither data nor binary_data_size"),
    ({"inputs": [{**BINARY, "data": [1]}]}, 422, "the input pixels has both data and binary_data_size"),
    ({"inputs": [{**GOOD, "data": [256] * ELEMENTS}]}, 422, "the input pixels has values outside 0 to 255"),
    ({"inputs": [{**GOOD, "data": [-1] * ELEMENTS}]}, 422, "values outside 0 to 255"),
    ({"inputs": [{**GOOD, "data": [10**400] * ELEMENTS}]}, 422, "values that are out of range"),
    ({"inputs": [{**GOOD, "data": [1.5] * ELEMENTS}]}, 422, "data that are not whole numbers"),
    ({"inputs": [{**GOOD, "data": [True] * ELEMENTS}]}, 422, "data that are not whole numbers"),
    ({"inputs": [{**GOOD, "data": ["1" * 10_000, *[1] * (ELEMENTS - 1)]}]}, 422, "data that are not whole numbers"),
    ({"inputs": [{**GOOD, "data": [None] * ELEMENTS}]}, 422, "data that are not whole numbers"),
    ({"inputs": [{**GOOD, "data": "7" * ELEMENTS}]}, 422, "inputs.0.data: Input should be a valid array"),
    ({"inputs": [{**GOOD, "data": [[1] * ELEMENTS]}]}, 422, "are not nested as [1, 3, 16, 16]"),
    ({"inputs": [{**GOOD, "data": [1, [1]]}]}, 422, "has 2 values"),
    ({"inputs": [{**GOOD, "data": [[1], 1]}]}, 422, "has 2 rows; its shape is [1, 3, 16, 16]"),
    ({"inputs": [{**FP32, "data": ["x"] * ELEMENTS}]}, 422, "data that are not numbers"),
    ({"inputs": [{**FP32, "data": [math.nan] * ELEMENTS}]}, 422, "the input input has values that are not finite"),
    ({"inputs": [{**FP32, "data": [math.inf] * ELEMENTS}]}, 422, "values that are not finite"),
    ({"inputs": [{**FP32, "data": [1e39] * ELEMENTS}]}, 422, "values that are not finite"),
    ({"inputs": [{**FP32, "data": [3e38] * ELEMENTS}]}, 422, "out of the range that the model can compute with"),
    (
        {"inputs": [{**BYTES, "data": [TEXT]}]},
        422,
        'images inside JSON are base64, and the parameters say {"content_type',
    ),
    ({"inputs": [{**ENCODED, "parameters": {"content_type": "png"}}]}, 422, "content_type: Input should be 'base64'"),
    ({"inputs": [{**ENCODED, "data": ["!"]}]}, 422, "inputs.0.data.0: not base64"),
    ({"inputs": [{**ENCODED, "data": [7]}]}, 422, "the input image has data that are not strings"),
    ({"inputs": [{**ENCODED, "data": [TEXT, TEXT]}]}, 422, "has 2 values; its shape asks for 1"),
    ({"inputs": [{**ENCODED, "data": ["AAAA"]}]}, 400, "the bytes are not an image"),
    ({"inputs": [{**ENCODED, "data": [""]}]}, 400, "the image is empty"),
    ({"inputs": [BINARY]}, 400, "0 bytes follow the JSON; the input announces 768"),
    ({"inputs": [{**PIXELS, "parameters": {"binary_data_size": 0}}]}, 400, "has 0 bytes; its shape asks for 768"),
    ({"inputs": [{**PIXELS, "parameters": {"binary_data_size": -1}}]}, 422, "greater than or equal to 0"),
    ({"inputs": [{**GOOD, "parameters": {"shared_memory_region": "x"}}]}, 422, "there is no such field"),
    ({"inputs": [GOOD], "parameters": {"timeout": 2**63}}, 422, "parameters.timeout: Input should be less than or"),
    ({"inputs": [GOOD], "parameters": {"timeout": 10**400}}, 422, "parameters.timeout: Input should be less than or"),
    ({"inputs": [GOOD], "outputs": [{"name": "thoughts"}]}, 422, "there is no output 'thoughts'; known are prob"),
    ({"inputs": [GOOD], "outputs": [{"name": "logits"}] * 2}, 422, "the output logits is requested twice"),
    ({"inputs": [GOOD], "outputs": [{"name": "n" * 101}]}, 422, "at most 100 characters"),
    (
        {"inputs": [GOOD], "outputs": [{"name": "embedding", "parameters": {"classification": 2}}]},
        422,
        "classification is for probabilities and logits, not embedding",
    ),
    ({"inputs": [GOOD], "outputs": [{"name": "logits", "parameters": {"classification": -1}}]}, 422, "greater than or"),
    (
        {"inputs": [GOOD], "parameters": {"tokens": "few"}},
        422,
        "parameters.tokens: Input should be 'reduced' or 'full'",
    ),
    ({"inputs": [GOOD], "parameters": {"timeout": -1}}, 422, "parameters.timeout: Input should be greater than"),
    ({"inputs": [GOOD], "parameters": {"priority": 1}}, 422, "parameters.priority: there is no such field"),
]


@pytest.mark.parametrize(("document", "status", "message"), BAD)
def test_a_malformed_request_is_refused_with_a_sentence(
    service: Serving, document: object, status: int, message: str
) -> None:
    answer = send(service, document)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
    assert set(answer.json()) == {"error", "error_type"}


@pytest.mark.parametrize(
    ("document", "behind", "length", "status", "message"),
    [
        ({"inputs": [BINARY]}, bytes(ELEMENTS - 1), None, 400, "767 bytes follow the JSON; the input announces 768"),
        ({"inputs": [BINARY]}, bytes(ELEMENTS + 1), None, 400, "769 bytes follow the JSON; the input announces 768"),
        ({"inputs": [GOOD]}, b"x", None, 400, "1 bytes follow the JSON; the input announces 0"),
        ({"inputs": [BINARY]}, bytes(ELEMENTS), "5000", 400, "Inference-Header-Content-Length is '5000', the body has"),
        ({"inputs": [BINARY]}, bytes(ELEMENTS), "-1", 400, "Inference-Header-Content-Length is '-1'"),
        ({"inputs": [BINARY]}, bytes(ELEMENTS), "7", 422, "Invalid JSON"),
        ({"inputs": [BINARY]}, bytes(ELEMENTS), "0", 422, "Invalid JSON"),
        (
            {"inputs": [{**FP32, "parameters": {"binary_data_size": 4 * ELEMENTS}}]},
            b"\0\0\xc0\x7f" * ELEMENTS,
            None,
            422,
            "the input input has values that are not finite",
        ),
        (
            {"inputs": [{**FP32, "parameters": {"binary_data_size": ELEMENTS}}]},
            bytes(ELEMENTS),
            None,
            400,
            "the input input has 768 bytes; its shape asks for 3072",
        ),
        (
            {"inputs": [{**BYTES, "parameters": {"binary_data_size": len(PACKED) - 1}}]},
            PACKED[:-1],
            None,
            400,
            "element 0 of the BYTES tensor has",
        ),
        (
            {"inputs": [{**BYTES, "shape": [2], "parameters": {"binary_data_size": len(PACKED)}}]},
            PACKED,
            None,
            400,
            "the BYTES tensor has 1 elements; its shape asks for 2",
        ),
    ],
)
def test_binary_data_that_do_not_fit_are_refused(  # noqa: PLR0917
    service: Serving, document: object, behind: bytes, length: str | None, status: int, message: str
) -> None:
    answer = send(service, document, behind, length)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_an_encoding_that_is_not_accepted_is_told_which_are(service: Serving) -> None:
    answer = service.client.post(INFER, content=b"{}", headers={"content-encoding": "br"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize(
    ("content", "headers", "status", "message"),
    [
        (b"", {}, 400, "the body is empty"),
        (b"{", {}, 422, "Invalid JSON"),
        (b"\xff\xfe", {}, 422, "Invalid JSON"),
        (b"[" * 60_000, {}, 422, "Invalid JSON"),
        (b"[" + b"0," * 2**20 + b"0]", {}, 413, "the JSON has more than 1048576 values; send tensors as binary"),
        (b"[" + b"[]," * 2**16 + b"[]]", {}, 413, "the JSON has more than 65536 arrays and objects"),
        (json.dumps({"inputs": [BINARY]}).encode(), {}, 400, "binary_data_size needs the header Inference-Header"),
        (b"{}", {"content-encoding": "br"}, 415, "content encoding 'br' is not accepted"),
        (b"{}", {"content-encoding": "gzip"}, 400, "the body is not gzip"),
        (gzip.compress(bytes(2**25 + 1)), {"content-encoding": "gzip"}, 413, "the inflated body is longer than"),
        (bytes(2**25 + 1), {}, 413, "the body is longer than the limit"),
        (b"{}", {"x-deadline-ms": "soon"}, 422, "x-deadline-ms"),
    ],
    ids=[
        "empty",
        "half an object",
        "not UTF-8",
        "deep",
        "many values",
        "many arrays",
        "no header length",
        "brotli",
        "not gzip",
        "bomb",
        "too long",
        "wrong deadline",
    ],
)
def test_a_body_that_is_no_request_is_refused(
    service: Serving, content: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    answer = service.client.post(INFER, content=content, headers=headers)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_whatever_bytes_arrive_nothing_is_an_internal_error(service: Serving) -> None:
    generator = random.Random(0)
    document = {"inputs": [{**FP32, "parameters": {"binary_data_size": 4 * ELEMENTS}}], "outputs": [{"name": "logits"}]}
    text = json.dumps(document).encode()
    good = text + torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0)).numpy().tobytes()
    statuses = set()
    for i in range(300):
        bad = bytearray(good)
        for _ in range(generator.randint(1, 3)):
            bad[generator.randrange(len(text) if i % 2 else len(good))] = generator.randrange(256)
        headers = {"inference-header-content-length": str(len(text) + generator.choice([0, 0, 0, 1, -1]))}
        answer = service.client.post(INFER, content=bytes(bad), headers=headers)
        statuses.add(answer.status_code)
    assert {200, 422} <= statuses <= {200, 400, 413, 422}


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/v2/models/nothing", 404, "there is no task 'nothing'"),
        ("GET", "/v2/models/digits/versions/2", 404, "'digits' is at version 1, not '2'"),
        ("GET", "/v2/models/digits/versions/01/ready", 404, "'digits' is at version 1, not '01'"),
        ("GET", "/v2/models/digits/versions/one/config", 404, "is at version 1, not 'one'"),
        ("GET", "/v2/models/nothing/stats", 404, "there is no task 'nothing'"),
        ("POST", "/v2/models/digits/versions/9/infer", 404, "is at version 1, not '9'"),
        ("POST", "/v2/models/nothing/infer", 404, "there is no task 'nothing'"),
        ("GET", "/v2/models/digits/infer", 405, "GET is not allowed here, only POST"),
        ("GET", "/v2/systemsharedmemory/status", 404, "there is no such path; /docs lists them"),
        ("POST", "/v2/repository/models/digits/unload", 403, "without an admin key"),
    ],
)
def test_unknown_models_versions_and_paths(service: Serving, method: str, path: str, status: int, message: str) -> None:
    answer = service.client.request(method, path)
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text
