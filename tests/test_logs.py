"""One line a request, in both forms, which nobody outside can forge."""

from __future__ import annotations

import json
import logging
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pictures
import pytest
from serving import ADMIN, Files, Serving, serving, small_settings

from service.http.exchange import Exchange, Inferred
from service.http.request_id import HEADER, current_id, identified, new_id
from service.logs import JsonFormatter, TextFormatter, log_exchange

IMAGE = pictures.png()


class Lines(logging.Handler):
    """Collects what is logged, as it would be written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def of(self, request_id: str) -> list[dict[str, object]]:
        """The entries of one request."""
        entries: list[dict[str, object]] = [json.loads(line) for line in self.lines]
        return [entry for entry in entries if entry.get("request_id") == request_id]


@contextmanager
def logging_to(formatter: logging.Formatter, level: int = logging.INFO) -> Iterator[Lines]:
    """What `service` logs from `level` on."""
    handler, logger = Lines(formatter), logging.getLogger("service")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def exchange(**changes: object) -> Exchange:
    made = Exchange("an-id", "POST", "192.0.2.1", None, None, route="/v1/tasks/{task}/classify", status=200)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def logged(formatter: logging.Formatter, done: Exchange, level: int = logging.INFO) -> list[str]:
    with logging_to(formatter, level) as log, identified(done.id):
        log_exchange(done)
    return log.lines


# Ids.


@pytest.mark.parametrize("given", ["a", "7f2c-11.b_X", "x" * 128])
def test_a_well_formed_id_is_kept(service: Serving, given: str) -> None:
    answer = service.client.get("/livez", headers={HEADER: given})
    assert answer.headers.get_list(HEADER) == [given]


@pytest.mark.parametrize("given", [None, "", "x" * 129, "a b", "a\tb", "é", "<script>", 'a"b', "a;b", "a=b"])
def test_any_other_is_replaced(service: Serving, given: str | None) -> None:
    headers = {} if given is None else {HEADER: given.encode()}
    first, second = (service.client.get("/livez", headers=headers).headers[HEADER] for _ in range(2))  # type: ignore[arg-type]
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert first != second


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/readyz", 200), ("GET", "/nowhere", 404), ("DELETE", "/v1/tasks/digits", 403), ("PUT", "/livez", 405)],
)
def test_every_answer_has_an_id(service: Serving, method: str, path: str, status: int) -> None:
    answer = service.client.request(method, path, headers={HEADER: "mine"})
    assert (answer.status_code, answer.headers[HEADER]) == (status, "mine")


def test_an_id_ends_with_its_request() -> None:
    with identified("outer"):
        assert current_id() == "outer"
        with identified(new_id("inner")):
            assert current_id() == "inner"
        assert current_id() == "outer"
    assert current_id() is None


def test_an_internal_error_is_found_under_the_id_of_its_request(small_files: Files) -> None:
    with serving(small_settings(small_files)) as damaged, logging_to(JsonFormatter()) as log:
        del damaged.runtime.inferences
        answer = damaged.client.post(
            "/v1/tasks/digits/classify", content=IMAGE, headers={"content-type": "image/png", HEADER: "mine"}
        )
        assert (answer.status_code, answer.json()["error"]) == (500, "internal error mine")
        damaged.until(lambda: len(log.of("mine")) == 2)
    error, line = log.of("mine")
    assert (error["level"], line["error_type"]) == ("error", "internal_error")
    assert "AttributeError" in str(error["exception"])


def test_what_a_change_of_tasks_logs_is_found_under_the_id_of_its_request(changeable: Serving) -> None:
    with logging_to(JsonFormatter()) as log:
        headers = {**ADMIN, HEADER: "change"}
        assert changeable.client.put("/v1/tasks/digits", content=b"damaged", headers=headers).status_code == 422
        assert changeable.client.post("/v1/tasks/digits/unload", headers=headers).status_code == 200
        changeable.until(lambda: len(log.of("change")) == 4)
    failure, _, unloaded, _ = log.of("change")
    assert "the task digits was refused" in str(failure["message"])
    assert "the task digits is out of service" in str(unloaded["message"])


def test_who_follows_the_folder_does_not_count_its_changes() -> None:
    code = (
        "import logging; from service.logs import configure; configure('debug', 'text'); "
        "logging.getLogger('service.catalog').info('in service'); logging.getLogger('watchfiles.main').info('1 change')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert line.endswith("in service")


def test_what_pillow_finds_odd_in_an_image_is_not_written(tmp_path: Path) -> None:
    """A thousand orientations, of which the file has none."""
    code = (
        "import sys; from PIL import Image; from service.logs import configure; configure('debug', 'text'); "
        "print(Image.open(sys.argv[1]).getexif())"
    )
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + struct.pack("<HHII", pictures.EXIF_ORIENTATION, 4, 1000, 100)
    (tmp_path / "image").write_bytes(pictures.encode(pictures.scene(), exif=exif))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "image")], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("{}\n", "")


# Lines.


def test_a_request_is_one_object(service: Serving) -> None:
    with logging_to(JsonFormatter()) as log:
        answer = service.client.post(
            "/v1/classify",
            params={"tasks": "digits,plain"},
            content=IMAGE,
            headers={"content-type": "image/png", HEADER: "both"},
        )
        service.until(lambda: bool(log.of("both")))
    (entry,) = log.of("both")
    tokens = [result["tokens"] for result in answer.json()["results"]]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(entry.pop("time")))
    assert float(str(entry.pop("total_ms"))) >= sum(float(str(entry.pop(f"{s}_ms"))) for s in ("decode", "inference"))
    assert float(str(entry.pop("queue_ms"))) >= 0
    assert entry == {
        "level": "info",
        "logger": "service.requests",
        "message": "POST /v1/classify 200",
        "request_id": "both",
        "method": "POST",
        "route": "/v1/classify",
        "status": 200,
        "error_type": None,
        "client": "127.0.0.1",
        "tasks": ["digits", "plain"],
        "bytes_in": len(IMAGE),
        "bytes_out": len(answer.content),
        "images": 1,
        "tokens_in": sum(one["in"] for one in tokens),
        "tokens_out": sum(one["out"] for one in tokens),
    }


def test_names_that_are_no_tasks_are_not_written(service: Serving) -> None:
    with logging_to(JsonFormatter()) as log:
        service.client.post("/v1/tasks/sesame/classify", headers={HEADER: "other"})
        service.client.post("/v1/classify?tasks=sesame,digits,sesame2", headers={HEADER: "many"})
        service.client.request("SESAME", "/sesame?sesame", headers={HEADER: "nowhere"})
        service.until(lambda: bool(log.of("nowhere")))
    (other,), (many,), (nowhere,) = (log.of(one) for one in ("other", "many", "nowhere"))
    assert many["tasks"] == ["_other", "digits"]
    assert (other["tasks"], other["status"], other["error_type"]) == (["_other"], 404, "unknown_task")
    assert (nowhere["route"], nowhere["method"], nowhere["message"]) == (None, "_OTHER", "_OTHER - 404")
    assert "sesame" not in "".join(log.lines).lower()


def test_text_has_the_same_in_one_line() -> None:
    inferred = Inferred("digits", 2, 34, 18, decode=0.001, queue=0.0005, inference=0.02, at=0.0)
    (line,) = logged(TextFormatter(), exchange(tasks=["digits"], seconds=0.025, received=7, inferred=[inferred]))
    assert line.split(" ", 1)[1] == (
        "INFO service.requests: POST /v1/tasks/{task}/classify 200 request_id=an-id method=POST "
        "route=/v1/tasks/{task}/classify status=200 client=192.0.2.1 tasks=digits bytes_in=7 bytes_out=0 total_ms=25.0 "
        "images=2 tokens_in=34 tokens_out=18 decode_ms=1.0 queue_ms=0.5 inference_ms=20.0"
    )


def test_no_line_can_be_forged() -> None:
    for forged in ("x\nINFO service: all is well", "x\r\x1b[2K", "x\x85y", "x\u2028y", 'x" status=200'):
        (text,) = logged(TextFormatter(), exchange(client=forged))
        assert len(text.splitlines()) == 1
        assert "\x1b" not in text
        assert text.count(" status=200") == 1 + (forged.count(" status=200"))
        (line,) = logged(JsonFormatter(), exchange(client=forged))
        assert len(line.splitlines()) == 1
        assert json.loads(line)["client"] == forged


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_an_exception_has_its_traceback(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("first\x1b[2K\nsecond")
    except ValueError:
        record = logging.LogRecord("service", logging.ERROR, "", 0, "it %s", ("failed",), sys.exc_info())
    text = formatter.format(record)
    assert "it failed" in text
    assert "Traceback" in text
    assert "\x1b" not in text


def test_health_is_logged_for_debugging_only() -> None:
    done = exchange(method="GET", route="/livez")
    assert logged(JsonFormatter(), done) == []
    assert len(logged(JsonFormatter(), done, logging.DEBUG)) == 1
