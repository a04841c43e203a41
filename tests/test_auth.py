"""With keys, nobody asks without one; an administrator may ask, and nobody else may change anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pictures
import pytest
from fastapi import FastAPI
from pydantic import SecretStr, ValidationError
from serving import Files, Serving, serving, small_settings
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from service.auth import check_client
from service.errors import ForbiddenError, UnauthorizedError
from service.settings import Settings

ADMIN, FIRST, SECOND = "an administrator's key", "first-key-of-clients", "clé-numéro-deux-à"
OF_WORDS = "correct horse battery staple"
OPEN = {"/livez", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"}
IMAGE = pictures.png()


def bearer(key: str) -> dict[str, bytes]:
    """As clients send it, who encode what is not ASCII as UTF-8."""
    return {"authorization": f"Bearer {key}".encode()}


@pytest.fixture(scope="module")
def locked(small_files: Files) -> Iterator[Serving]:
    with serving(small_settings(small_files, admin_key=ADMIN, api_keys=f"{FIRST},{SECOND}", watch=False)) as running:
        yield running


def classify(service: Serving, headers: dict[str, bytes]) -> httpx.Response:
    url = "/v1/tasks/digits/classify"
    return service.client.post(url, content=IMAGE, headers={b"content-type": b"image/png"} | _raw(headers))


def _raw(headers: dict[str, bytes]) -> dict[bytes, bytes]:
    return {name.encode(): value for name, value in headers.items()}


@pytest.mark.parametrize("key", [FIRST, SECOND, ADMIN])
def test_each_key_lets_a_client_ask(locked: Serving, key: str) -> None:
    assert classify(locked, bearer(key)).status_code == 200
    assert locked.client.get("/v1/tasks", headers=_raw(bearer(key))).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status", "error_type"),
    [
        ({}, 401, "unauthorized"),
        ({"authorization": b"Basic " + FIRST.encode()}, 401, "unauthorized"),
        ({"x-api-key": FIRST.encode()}, 401, "unauthorized"),
        ({"authorization": b"Bearer"}, 401, "unauthorized"),
        (bearer(FIRST[:-1]), 403, "forbidden"),
        (bearer(f"{FIRST},{SECOND}"), 403, "forbidden"),
    ],
    ids=["none", "another scheme", "another header", "no key", "too short", "all at once"],
)
def test_others_are_told_what_is_missing(
    locked: Serving, headers: dict[str, bytes], status: int, error_type: str
) -> None:
    answer = classify(locked, headers)
    assert (answer.status_code, answer.json()["error_type"]) == (status, error_type)
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


def operations(app: FastAPI) -> Iterator[tuple[str, str]]:
    for path, methods in app.openapi()["paths"].items():
        for method in methods:
            yield (
                method.upper(),
                path.replace("{task}", "digits").replace("{model}", "digits").replace("{version}", "1"),
            )


def test_every_path_needs_a_key_but_those_that_watch_over_the_service(locked: Serving) -> None:
    """Also those that somebody adds, unless they are added here."""
    found = set(operations(locked.server.config.app))  # type: ignore[arg-type]
    assert {path for _, path in found} >= OPEN
    for method, path in found:
        status = locked.client.request(method, path).status_code
        assert (status == 200) if path in OPEN else (status == 401), (method, path)


def test_a_key_of_clients_changes_nothing(locked: Serving, small_files: Files) -> None:
    before = {path: path.read_bytes() for path in small_files.tasks.iterdir()}
    changes = [("PUT", "/v1/tasks/digits"), ("DELETE", "/v1/tasks/digits"), ("DELETE", "/v1/tasks/digits/pin")]
    changes += [("POST", f"/v1/tasks/digits/{verb}") for verb in ("load", "unload", "pin")]
    changes += [("POST", f"/v2/repository/models/digits/{verb}") for verb in ("load", "unload")]
    for method, path in changes:
        answer = locked.client.request(method, path, headers=_raw(bearer(FIRST)))
        assert (answer.status_code, answer.json()["error_type"]) == (403, "forbidden"), path
    assert classify(locked, bearer(FIRST)).json()["generation"] == 1
    assert {path: path.read_bytes() for path in small_files.tasks.iterdir()} == before


def test_the_key_is_looked_at_before_anything_else(locked: Serving) -> None:
    answer = locked.client.post("/v1/tasks/nothing/classify?top_k=none", content=bytes(2**20))
    assert answer.status_code == 401
    assert locked.client.get("/v1/tasks/nothing").status_code == 401  # nobody may guess names


def test_the_stock_client_sends_a_key(locked: Serving) -> None:
    image = InferInput("image", [1], "BYTES")
    image.set_data_from_numpy(np.array([IMAGE], dtype=np.object_))
    with InferenceServerClient("{}:{}".format(*locked.address)) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="API key"):
            client.infer("digits", [image])
        answer = client.infer("digits", [image], headers={"Authorization": f"Bearer {FIRST}"})
        assert answer.as_numpy("probabilities").shape == (1, 10)


def test_the_description_says_how_to_send_a_key(locked: Serving) -> None:
    described = locked.client.get("/openapi.json").json()
    assert described["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, method in (("/v1/tasks/{task}/classify", "post"), ("/v1/tasks/{task}", "put")):
        assert described["paths"][path][method]["security"] == [{"HTTPBearer": []}]
        assert {"401", "403"} <= described["paths"][path][method]["responses"].keys()


def test_all_keys_are_compared() -> None:
    """The last of many counts as the first does, and no key counts without its rest."""
    keys = [SecretStr(f"key number {i:08}") for i in range(50)]
    for key in keys:
        check_client(keys, None, f"bearer  {key.get_secret_value()} ")
    with pytest.raises(ForbiddenError, match="the API key is wrong"):
        check_client(keys, None, "Bearer key number 0000005")
    with pytest.raises(UnauthorizedError):
        check_client(keys, SecretStr("admin"), None)
    check_client((), SecretStr("admin"), None)  # no keys: everybody may


def test_keys_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"  {FIRST}\r\n\n \n{SECOND}\n{OF_WORDS}")
    (tmp_path / "admin").write_text(f"{ADMIN}\n")
    settings = Settings(
        api_keys_file=tmp_path / "keys", admin_key_file=tmp_path / "admin", tasks=tmp_path, calibration_repeats=0
    )
    assert [key.get_secret_value() for key in settings.api_keys] == [FIRST, SECOND, OF_WORDS]
    assert settings.admin_key == SecretStr(ADMIN)
    assert FIRST not in repr(settings)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("\n", {}, "names no key"),
        ("secret-1234", {}, "at least 16"),
        (f"{FIRST}\n", {"api_keys": SECOND}, "give one of them"),
        (f"{FIRST}\n", {"admin_key": FIRST}, "must not be among them"),
        (None, {}, "cannot be read"),
    ],
)
def test_keys_that_would_not_keep_anybody_out_are_refused(
    tmp_path: Path, content: str | None, options: dict[str, str], message: str
) -> None:
    if content is not None:
        (tmp_path / "keys").write_text(content)
    with pytest.raises(ValidationError, match=message) as caught:
        Settings(api_keys_file=tmp_path / "keys", tasks=tmp_path, **options)  # type: ignore[arg-type]
    for secret in ("secret-1234", FIRST, SECOND):
        assert secret not in str(caught.value)


CONTROLS = [chr(code) for code in (*range(32), 127)]
LOST = "\0\n\v\f\r"  # which end a header, or which the server does not take


def asked_raw(service: Serving, authorization: bytes) -> int:
    """The status for a header that no client would check before."""
    head = b"GET /v1/tasks HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: " + authorization + b"\r\n\r\n"
    with socket.create_connection(service.address, timeout=20) as connection:
        connection.sendall(head)
        return int(connection.makefile("rb").readline().split()[1])


def test_every_key_that_is_accepted_can_be_sent_and_no_other(small_files: Files) -> None:
    keys = {between: f"a-key-of{between}whoever-asks" for between in (*CONTROLS, " ", "à", "\x85", "ключ", "\u2028")}
    sendable = [SecretStr(key) for between, key in keys.items() if between not in LOST]
    with serving(small_settings(small_files, api_keys=sendable, watch=False)) as service:
        for between, key in keys.items():
            assert asked_raw(service, f"Bearer {key}".encode()) == (400 if between in LOST else 200), repr(between)


@pytest.mark.parametrize(
    "key",
    [
        *(f"first-part-of{lost}the-second-part" for lost in LOST),
        "first-part-of\r\nthe-second-part",
        " the-second-part-after-a-blank",
        "the-second-part-before-a-tab\t",
        "the-second-part-not-utf8-\udce9",
    ],
)
def test_a_key_that_cannot_be_sent_keeps_the_service_from_starting(tmp_path: Path, key: str) -> None:
    for options in ({"admin_key": key}, {"api_keys": [FIRST, key]}):
        with pytest.raises(ValidationError, match=next(iter(options))) as caught:
            Settings(tasks=tmp_path, **options)  # type: ignore[arg-type]
        assert "second-part" not in str(caught.value)


def test_a_mark_of_utf8_is_no_part_of_a_key(tmp_path: Path) -> None:
    for name, key in (("admin", ADMIN), ("keys", FIRST)):
        (tmp_path / name).write_text(key, "utf-8-sig")
    settings = Settings(admin_key_file=tmp_path / "admin", api_keys_file=tmp_path / "keys", tasks=tmp_path)
    assert (settings.admin_key, settings.api_keys) == (SecretStr(ADMIN), (SecretStr(FIRST),))


def test_the_file_of_the_admin_key_holds_one(tmp_path: Path) -> None:
    (tmp_path / "admin").write_text(f"{FIRST}\n{SECOND}\n")
    with pytest.raises(ValidationError, match=r"admin_key\n.* it has to be one line of UTF-8") as caught:
        Settings(admin_key_file=tmp_path / "admin", tasks=tmp_path)
    assert FIRST not in str(caught.value)


@pytest.mark.parametrize("name", ["admin_key_file", "api_keys_file"])
def test_a_file_without_a_key_is_named(tmp_path: Path, name: str) -> None:
    blank = tmp_path / "blank"
    blank.write_text("\n \n")
    for file, reason in ((str(blank), f"{name}: {blank} names no key"), ("", f"{name}: is empty")):
        with pytest.raises(ValidationError, match=reason):
            Settings(tasks=tmp_path, **{name: file})  # type: ignore[arg-type]


def test_a_variable_that_is_empty_is_no_open_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FPET_API_KEYS", "")
    with pytest.raises(ValidationError, match="names no key"):
        Settings()


def test_without_keys_everybody_may_ask(service: Serving) -> None:
    assert service.classify(IMAGE).status_code == 200
