"""Conditions of a change in several lines of its head: they are one list (RFC 9110, section 5.3)."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from changing import task_file
from serving import ADMIN, Serving

OTHER = '"other"'


@pytest.mark.parametrize("path", ["/v1/tasks/digits/load", "/v2/repository/models/digits/load"])
def test_any_line_may_name_what_serves(changeable: Serving, path: str) -> None:
    etag = changeable.client.get("/v1/tasks/digits").headers["etag"]

    def load(*lines: str) -> int:
        headers = [*ADMIN.items(), *(("if-match", line) for line in lines)]
        return changeable.client.post(path, headers=headers).status_code

    assert [load(*lines) for lines in ((OTHER, etag), (etag, OTHER), (OTHER, f"{OTHER}, {etag}"), (OTHER, "*"))] == [
        200
    ] * 4
    assert [load(*lines) for lines in ((OTHER,), (OTHER, OTHER), ("", OTHER), ("",))] == [409] * 4


def test_every_line_is_looked_at(changeable: Serving, tmp_path: Path) -> None:
    data = task_file(tmp_path)

    def put(*lines: str) -> httpx.Response:
        headers = [*ADMIN.items(), *(("if-none-match", line) for line in lines)]
        return changeable.client.put("/v1/tasks/digits", headers=headers, content=data)

    assert put("*", "*").status_code == 409
    for lines in (("*", OTHER), (OTHER, "*")):
        refused = put(*lines)
        assert (refused.status_code, refused.json()["error_type"]) == (422, "invalid_request")
    assert changeable.client.get("/v1/tasks/digits").json()["generation"] == 1
