"""What a caller of the client may name and give to it, and what it needs to be imported."""

from __future__ import annotations

import inspect
import math
import pickle
import re
import subprocess
import sys
from typing import Any

import pytest
from peer import REFUSED, Answer, peer

import fpet.client
from fpet.client import (
    AsyncClient,
    Client,
    ConflictError,
    ServiceError,
    UnreachableError,
)
from fpet.errors import UnsupportedError


@pytest.mark.parametrize(
    "wrong",
    [
        "127.0.0.1:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:65536",
        "http://host?x=1",
        "http://host/path#x",
        "",
        "http://a..b",
        f"http://{'a' * 64}",
    ],
)
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(UnsupportedError, match="is no address of a service"):
            kind(wrong)


def test_a_key_beside_a_password_in_the_address_is_refused() -> None:
    for kind in (Client, AsyncClient):
        kind("http://name:password@host")
        with pytest.raises(UnsupportedError, match=r"^the address has a name or a password in it") as error:
            kind("http://name:secret@host", key="k")
        assert "secret" not in str(error.value)


def test_options_that_are_set_later_hold_for_every_request() -> None:
    with peer([Answer(503, REFUSED, {"retry-after": "1"})] * 2) as service, Client(service.url) as client:
        client.retries = 0
        with pytest.raises(ServiceError) as error:
            client.tasks()
        client.timeout = -1.0
        with pytest.raises(ValueError, match=r"timeout = -1\.0"):
            client.tasks()
    assert error.value.status == 503
    assert len(service.received) == 1


def test_a_password_in_the_address_is_not_shown() -> None:
    for kind in (Client, AsyncClient):
        assert repr(kind("http://name:secret@host:1/a@b")) == f"{kind.__name__}('http://host:1/a@b')"
        for wrong in ("http://name:secret@host:99999", "ftp://name:secret@host", "http://name:sec@ret@host?x=1"):
            with pytest.raises(UnsupportedError, match=r"^'(ht|f)tp://host\S*' is no address of a service") as error:
                kind(wrong)
            assert "sec" not in str(error.value)


def test_errors_come_back_from_other_processes() -> None:
    told = UnreachableError("no answer", received=False)
    again = pickle.loads(pickle.dumps(told))
    assert (type(again), str(again), again.received) == (UnreachableError, "no answer", False)
    refused = ConflictError("another", status=409, error_type="conflict", request_id="1", retry_after=2.0)
    assert vars(pickle.loads(pickle.dumps(refused))) == vars(refused)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"timeout": seconds} for seconds in (0, -1, math.nan, math.inf, 1e307, 2_000_001, "5", None)),
        *({"retries": number} for number in (-1, 1.5, "5")),
        *({name: number} for name in ("batch", "concurrency", "max_body") for number in (0, 2.5, "4")),
    ],
    ids=str,
)
def test_what_is_no_number_in_its_range_is_refused(wrong: dict[str, object]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match="^" + re.escape(f"{name} = {value!r} should be a")):
        Client("http://host", **wrong)  # type: ignore[arg-type]


def test_the_longest_timeout_is_one_that_a_socket_takes() -> None:
    with peer([Answer(200, {"tasks": []})]) as there, Client(there.url, timeout=2_000_000) as client:
        assert client.tasks() == []


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_to_another_path_is_refused(name: str) -> None:
    with Client("http://host", retries=0) as client:
        for ask in (client.task, client.delete, client.pin, client.unpin):
            with pytest.raises(ValueError, match=re.escape(f"task = {name!r} should be the name of a task")):
                ask(name)


def test_a_misspelt_option_is_refused_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:1", retries=0) as client:
        for ask in (client.classify, client.classify_each, client.classify_many):
            with pytest.raises(TypeError, match="no option 'topk'; there are top_k, tokens, outputs, deadline"):
                ask([b""], "digits", topk=9)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="no option 'if_mach'; there are if_match, if_none_match"):
            client.put("digits", b"", if_mach="digest")  # type: ignore[call-arg]
        for change in (client.delete, client.load, client.unload, client.pin, client.unpin):
            with pytest.raises(TypeError, match="no option 'ifmatch'"):
                change("digits", ifmatch="digest")  # type: ignore[call-arg]


@pytest.mark.parametrize("deadline", ["5", None, 1j, [5], math.nan, 0, -1], ids=repr)
def test_a_deadline_that_is_no_number_above_0_is_refused_before_anything_is_sent(deadline: Any) -> None:
    message = "^" + re.escape(f"deadline = {deadline!r} should be a number of seconds above 0")
    with Client("http://127.0.0.1:1", retries=0) as client:
        for ask in (client.classify, client.classify_each, client.classify_many):
            with pytest.raises(ValueError, match=message):
                ask([b""], "digits", deadline=deadline)


@pytest.mark.parametrize("condition", ["if_match", "if_none_match"])
def test_a_condition_that_says_nothing_is_refused_before_anything_is_sent(condition: str) -> None:
    with Client("http://127.0.0.1:1", retries=0) as client:
        for change in (client.delete, client.load, client.unload, client.pin, client.unpin):
            with pytest.raises(TypeError, match=f"{condition} = None should be text"):
                change("digits", **{condition: None})  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["line\nbreak", " secret", "\x7f"])
def test_a_key_that_no_header_holds_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UnsupportedError) as error:
        Client("http://host", key=key)
    assert key not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("ALL_PROXY", "socks4://127.0.0.1:1", "Unknown scheme for proxy URL"),
        ("NO_PROXY", "[::1", "Invalid port"),
        ("SSL_CERT_FILE", "missing.pem", "No such file"),
    ],
)
def test_what_the_environment_says_and_cannot_be_used_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(name, value)
    for kind in (Client, AsyncClient):
        with pytest.raises(
            UnsupportedError, match=f"a proxy or certificate of the environment cannot be used: .*{reason}"
        ):
            kind("http://host")


def test_both_clients_have_the_same_methods_with_the_same_arguments() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: inspect.signature(method) for name, method in found if not name.startswith("_")}

    ours, theirs = methods(Client), methods(AsyncClient)
    assert ours.pop("close")
    assert theirs.pop("aclose")
    assert ours == theirs


def test_what_is_exported_is_all_that_a_caller_may_name() -> None:
    errors = {kind.__name__ for kind in ServiceError.__subclasses__()} | {"ServiceError"}
    assert errors <= set(fpet.client.__all__)
    assert sorted(fpet.client.__all__) == fpet.client.__all__
    assert all(hasattr(fpet.client, name) for name in fpet.client.__all__)


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_the_client_needs_no_torch_and_says_that_it_needs_httpx() -> None:
    assert run("import sys, fpet.client; print('torch' in sys.modules)") == "False\n"
    script = """
import sys
sys.modules["httpx"] = None  # how Python marks what cannot be imported
try:
    import fpet.client
except ImportError as error:
    print(error)
"""
    assert run(script) == "asking a service needs httpx and anyio, which the extra `client` of this package installs\n"
