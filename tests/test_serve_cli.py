"""`fpet serve`: a flag for every option, and a process that starts, answers and stops."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from serving import Files

from fpet.cli import main
from service.cli import add_command, read_settings, run
from service.http.listening import require_free
from service.settings import PREFIX, SECRETS, Settings


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fpet")
    add_command(parser.add_subparsers())
    return parser


def test_help_names_every_option_its_variable_and_default(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        parser.parse_args(["serve", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, field in Settings.model_fields.items():
        if name in SECRETS:
            assert f"--{name.replace('_', '-')} " not in text  # everybody on the machine could read it
            continue
        assert f"--{name.replace('_', '-')} " in text
        assert PREFIX + name.upper() in text
        assert str(field.description) in text


def test_a_flag_wins_over_the_environment(parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FPET_MAX_BATCH", "8")
    monkeypatch.setenv("FPET_PORT", "9000")
    settings = read_settings(parser.parse_args(["serve", "--max-batch", "4", "--formats", "png,gif"]))
    assert (settings.max_batch, settings.port, settings.formats) == (4, 9000, ("png", "gif"))


def test_a_switch_may_stand_alone(parser: argparse.ArgumentParser) -> None:
    def switches(*flags: str) -> tuple[bool, bool]:
        settings = read_settings(parser.parse_args(["serve", *flags]))
        return settings.cuda_graphs, settings.watch

    assert switches() == (False, True)
    assert switches("--cuda-graphs", "--watch") == (True, True)
    assert switches("--cuda-graphs=false", "--watch=false") == (False, False)


def test_a_wrong_value_is_one_line_that_names_flag_and_variable(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(parser.parse_args(["serve", "--max-batch", "0"])) == 2
    assert capsys.readouterr().err.startswith("fpet serve: --max-batch (FPET_MAX_BATCH): Input should be greater")
    monkeypatch.setenv("FPET_API_KEYS", "long-enough-to-be-a-key,secret")
    assert run(parser.parse_args(["serve"])) == 2
    wrong = capsys.readouterr().err
    assert wrong.startswith("fpet serve: FPET_API_KEYS: ")
    assert "secret" not in wrong
    monkeypatch.delenv("FPET_API_KEYS")
    assert run(parser.parse_args(["serve", "--max-queue", "1"])) == 2
    assert capsys.readouterr().err == "fpet serve: max_images (64) must not exceed max_queue (1)\n"


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_port_in_use_is_said_before_anything_is_loaded(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--host", host, "--port", str(port), "--backbone", "nowhere"]) == 2
    assert (
        capsys.readouterr().err
        == f"fpet: --host {host!r} and --port {port}: Address already in use; give another --port\n"
    )


def test_a_task_folder_that_is_none_is_said_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for name, why in {"nowhere": "the task folder does not exist", "file": "is a file; the task folder is the"}.items():
        path = tmp_path / name
        assert main(["serve", "--port", "0", "--tasks", str(path), "--backbone", "nowhere"]) == 2
        assert capsys.readouterr().err.startswith(f"fpet: {path}: {why}")


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere", "No such file or directory"), ("pipe", "it is not a regular file")]
)
def test_a_backbone_that_is_missing_is_said_before_anything_is_loaded(name: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    script = "import sys; from fpet.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    command = [sys.executable, "-c", script, "serve", "--port", "0", "--backbone", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
    assert done.stderr == f"fpet: {tmp_path / name}: cannot be read: {reason}\n"


def test_what_commands_download_a_service_takes_as_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--backbone", "timm:vit_base_patch16_224"]) == 2
    said = "fpet import-backbone timm:vit_base_patch16_224 --output FILE writes one"
    assert capsys.readouterr().err == f"fpet serve: backbone: a service takes a file; {said}\n"


def test_a_port_that_is_free_by_now_or_in_use_elsewhere_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        require_free("127.0.0.2", port)
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = other.accept()
            accepted.close()  # by the server first, whose port then stays in use for a while
            assert client.recv(1) == b""
    require_free("127.0.0.1", port)
    if socket.has_dualstack_ipv6():
        with socket.create_server(("0.0.0.0", 0)) as other:
            require_free("::", other.getsockname()[1])


def test_a_host_without_an_address_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "a..b"]) == 2
    assert capsys.readouterr().err.startswith("fpet: --host 'a..b' has no address: ")


@pytest.mark.parametrize("option", ["--admin-key", "--api-keys"])
@pytest.mark.parametrize("given", [["{}", "secret"], ["{}=secret"]])
def test_a_secret_on_the_command_line_is_refused_and_not_repeated(
    option: str, given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", *(part.format(option) for part in given)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{option} is no option: give FPET_{option[2:].replace('-', '_').upper()}, or {option}-file" in said
    assert "secret" not in said


def test_an_option_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--max-bat", "3"])
    assert "unrecognized arguments: --max-bat 3" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_one_line(small_files: Files) -> None:
    command = [sys.executable, "-m", "fpet.cli", "serve", "--device", "cuda", "--backbone", str(small_files.backbone)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fpet: the device 'cuda' cannot be used: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("wrong", [["--backbone", "missing.safetensors"], ["--tasks", "nowhere"]])
def test_why_it_does_not_start_is_an_object_where_the_log_has_objects(wrong: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fpet.cli", "serve", "--port", "0", "--log-format", "json", *wrong]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    *_, last = map(json.loads, done.stderr.splitlines())
    assert (last["level"], last["logger"]) == ("error", "service.cli")
    assert wrong[1] in last["message"]


# A machine that lets the process have no more threads.
_NO_THREADS = """
import sys
import threading
from fpet.cli import main
threading.stack_size(2**46)
sys.exit(main(sys.argv[1:]))
"""


def test_a_process_that_cannot_start_ends(small_files: Files) -> None:
    command = [sys.executable, "-c", _NO_THREADS, "serve", "--port", "0", "--backbone", str(small_files.backbone)]
    command += ["--tasks", str(small_files.tasks), "--dtype", "float32", "--workers", "1", "--threads", "1"]
    command += ["--shutdown-delay", "0"]
    environment = {**os.environ, "FPET_MAX_BATCHS": "3"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "variables that are no options: FPET_MAX_BATCHS\n" in done.stderr
    assert "the service cannot start" in done.stderr
    assert "can't start new thread" in done.stderr


# What the process' memory is like is told once it has stopped; it is not ended by the signal for that.
_SERVE = """
import gc
import signal
import sys
from fpet.cli import main
for stop in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(stop, lambda *_: None)
code = main(sys.argv[1:])
print(gc.get_freeze_count())
sys.exit(code)
"""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGHUP])
def test_a_process_starts_answers_and_stops_on_a_signal(small_files: Files, stop: signal.Signals) -> None:
    command = [sys.executable, "-c", _SERVE, "serve", "--port", "0", "--device", "cpu", "--dtype", "float32"]
    command += ["--backbone", str(small_files.backbone), "--tasks", str(small_files.tasks)]
    command += ["--threads", "1", "--max-batch", "1", "--calibration-repeats", "0", "--shutdown-delay", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = ""
        for line in process.stderr:
            if "running on" in line:
                address = line.split(" running on ")[1].split()[0]
            if "ready: 2 tasks" in line:
                break
        with urllib.request.urlopen(f"{address}/readyz", timeout=20) as answer:
            assert answer.status == 200
        where = urllib.parse.urlsplit(address)
        with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
        process.send_signal(stop)
        log = process.stderr.read()
        assert "Finished server process" in log
        assert log.count("refused what is no HTTP") == 1
        assert "Invalid HTTP request" not in log  # as Uvicorn says, without a client
        assert int(process.stdout.read()) > 100_000  # objects that the garbage collector leaves out
    assert process.returncode == 0
