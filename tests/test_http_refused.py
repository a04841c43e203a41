"""The service asked wrongly, over real HTTP: every refusal is a sentence in the one form."""

from __future__ import annotations

import httpx
import pictures
import pytest
from classify_requests import CLASSIFY, IMAGES, MISDIRECTED, form
from full_queue import full
from serving import Serving


@pytest.mark.parametrize(
    ("image", "status", "error_type"),
    [
        (b"", 400, "bad_request"),
        (b"not an image", 400, "bad_image"),
        (IMAGES[0][:-30], 400, "bad_image"),
        (pictures.animated("GIF"), 400, "bad_image"),
        (pictures.encode(pictures.scene(), "TIFF"), 415, "unsupported_type"),
        (pictures.hundred_megapixels(), 413, "too_large"),
    ],
    ids=["empty", "undecodable", "truncated", "animated", "tiff", "100 megapixels"],
)
def test_bad_images_are_refused_with_a_sentence(service: Serving, image: bytes, status: int, error_type: str) -> None:
    answer = service.classify(image)
    assert answer.status_code == status
    assert answer.json()["error_type"] == error_type
    assert " " in answer.json()["error"]
    assert service.classify(IMAGES[0]).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *MISDIRECTED,
        ("POST", f"{CLASSIFY}?top_k=0", 422),
        ("POST", f"{CLASSIFY}?top_k=11", 422),
        ("POST", f"{CLASSIFY}?tokens=few", 422),
        ("POST", f"{CLASSIFY}?outputs=thoughts", 422),
        ("POST", f"{CLASSIFY}?topk=1", 422),
        ("POST", "/v1/tasks/digits/explain?top_k=1", 422),
    ],
)
def test_every_error_has_the_one_form(service: Serving, method: str, path: str, status: int) -> None:
    answer = service.client.request(method, path, content=IMAGES[0], headers={"content-type": "image/png"})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "error_type"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"{CLASSIFY}?top_k=1&top_k=2", "top_k"),
        (f"{CLASSIFY}?tokens=full&outputs=logits&tokens=full", "tokens"),
        ("/v1/classify?tasks=digits&top_k=1&top_k=2", "top_k"),
        ("/v1/tasks/digits/explain?format=png&format=json", "format"),
    ],
)
def test_a_parameter_of_one_value_is_not_given_twice(service: Serving, path: str, name: str) -> None:
    answer = service.client.post(path, content=IMAGES[0], headers={"content-type": "image/png"})
    assert (answer.status_code, answer.json()) == (
        422,
        {"error": f"query.{name}: it is given 2 times and may be given once", "error_type": "invalid_request"},
    )


@pytest.mark.parametrize("tasks", ["", ",", "%20,&tasks="])
def test_a_list_of_no_tasks_is_refused(service: Serving, tasks: str) -> None:
    def ask() -> httpx.Response:
        url = f"/v1/classify?tasks={tasks}"
        return service.client.post(url, content=IMAGES[0], headers={"content-type": "image/png"})

    answers = [ask()]
    with full(service):
        answers.append(ask())
    for answer in answers:
        assert answer.status_code == 422
        assert answer.json()["error"] == "query.tasks: no task is named"


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/tasks/digits", "DELETE, GET, HEAD, PUT"),
        (CLASSIFY, "POST"),
        ("/livez", "GET, HEAD"),
        ("/docs", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_told_all_that_it_has(service: Serving, path: str, methods: str) -> None:
    answer = service.client.patch(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "video/mp4"])
def test_other_content_types_are_refused_by_naming_those_accepted(service: Serving, content_type: str) -> None:
    answer = service.client.post(CLASSIFY, content=b"x", headers={"content-type": content_type})
    assert answer.status_code == 415
    assert "multipart/form-data" in answer.json()["error"]


def test_ten_thousand_parts_are_refused(service: Serving) -> None:
    answer = service.client.post(CLASSIFY, **form([IMAGES[0]] * 10_000))
    assert answer.status_code == 413
    assert answer.json() == {"error": "the request has more than 64 images", "error_type": "too_large"}


def test_a_body_over_the_limit_is_refused(service: Serving) -> None:
    too_long = bytes(service.runtime.settings.max_body + 1)
    assert service.classify(too_long).status_code == 413
    chunked = (too_long[i : i + 2**20] for i in range(0, len(too_long), 2**20))
    answer = service.client.post(CLASSIFY, content=chunked, headers={"content-type": "image/png"})
    assert answer.status_code == 413


def test_one_bad_image_of_several_is_named(service: Serving) -> None:
    answer = service.client.post(CLASSIFY, **form([IMAGES[0], b"bad", IMAGES[1]]))
    assert answer.status_code == 400
    assert answer.json()["error"] == "image 1: the bytes are not an image"
