"""An option is declared once; a given value wins over the environment, which wins over the default."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from service.errors import reason_of
from service.settings import PREFIX, Settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().max_batch == 16
    monkeypatch.setenv("FPET_MAX_BATCH", "8")
    assert Settings().max_batch == 8
    assert Settings(max_batch=4).max_batch == 4


def test_formats_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FPET_FORMATS", "png, jpeg")
    assert Settings().formats == ("png", "jpeg")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", 65536),
        ("device", "tpu"),
        ("dtype", "int8"),
        ("max_batch", 0),
        ("deadline", 0),
        ("deadline", float("inf")),
        ("keep_alive_seconds", 0),
        ("shutdown_delay", 1e10),  # more than can be waited for
        ("drain_seconds", 1e10),
        ("formats", "svg"),
        ("formats", ""),
        ("surprise", 1),
    ],
)
def test_values_out_of_bounds_are_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"admin_key": "short"}, {"api_keys": "first-key-of-clients,short"}])
def test_a_short_key_is_refused_in_characters(options: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**options)  # type: ignore[arg-type]
    (problem,) = refused.value.errors()
    assert problem["loc"][0] in options
    assert reason_of(problem) == "the key is too short; it needs at least 16 characters"


@pytest.mark.parametrize("name", ["tasks", "backbone"])
def test_an_empty_path_is_not_the_working_directory(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX + name.upper(), "")
    with pytest.raises(ValidationError, match="is empty") as refused:
        Settings()
    assert [error["loc"] for error in refused.value.errors()] == [(name,)]


def test_a_misspelt_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Settings.unknown_variables()
    monkeypatch.setenv("FPET_MAX_BATCHS", "3")
    monkeypatch.setenv("fpet_max_batch", "3")
    assert Settings.unknown_variables() == sorted([*before, "FPET_MAX_BATCHS"])
    assert Settings().max_batch == 3


def test_a_request_must_fit_into_the_queue() -> None:
    with pytest.raises(ValidationError, match=r"max_images \(64\) must not exceed max_queue \(8\)"):
        Settings(max_queue=8)


def test_a_body_must_fit_into_what_bodies_may_take() -> None:
    with pytest.raises(ValidationError, match=r"max_body \(33554432\) must not exceed max_received \(1000\)"):
        Settings(max_received=1000)


def test_every_option_has_help() -> None:
    assert all(field.description for field in Settings.model_fields.values())
