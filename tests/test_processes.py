"""Several processes that answer on one port, as one service would: real processes, over real HTTP."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pictures
import pytest
from changing import task_file
from clients import ask_until_refused
from serving import ADMIN, KEY, SECONDS, Files, copy_files, write_task
from small import small_backbone, small_header

from benchmarks.servers import READY, Server, StartError, fpet_command, start, state
from fpet.cli import main
from service.hardware import share_of_cores

PROCESSES = 2
PATH = "/v1/tasks/digits/classify"
OPTIONS = f"--processes {PROCESSES} --dtype float32 --calibration-repeats 0 --max-batch 4 --shutdown-delay 0.5".split()


def start_several(files: Files, folder: Path, *options: str) -> Server:
    command = fpet_command(files.tasks, "--backbone", str(files.backbone), *OPTIONS, *options)
    return start(command, READY, log=folder / "log", environment={"FPET_ADMIN_KEY": KEY})


@pytest.fixture(scope="module")
def files(small_files: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return copy_files(small_files, tmp_path_factory.mktemp("several") / "tasks")


@pytest.fixture(scope="module")
def several(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = start_several(files, tmp_path_factory.mktemp("log"))
    yield server
    server.end()


def answering(server: Server) -> list[int]:
    """Its processes but that which started them, and the one by which Python keeps track of what they share."""
    held = [int(pid) for pid in server.processes()[1:]]
    return [pid for pid in held if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def get(server: Server, path: str) -> str:
    """On a connection of its own, which any of the processes may take."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def open_files(pid: int) -> Iterator[str]:
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed by now
            yield str(file.readlink())


def await_end(*pids: int) -> None:
    """Whoever started them, and without taking the processor from them by asking."""
    for pid in pids:
        with suppress(ProcessLookupError):  # missed by its parent already
            descriptor = os.pidfd_open(pid)
            try:
                assert select.select([descriptor], [], [], SECONDS)[0]
            finally:
                os.close(descriptor)


def classify(server: Server) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("POST", PATH, pictures.png(), {"content-type": "image/png"})
    answer = connection.getresponse()
    document: dict[str, object] = json.loads(answer.read())
    connection.close()
    assert answer.status == 200
    return document


def test_their_metrics_and_savings_are_told_as_of_one(several: Server) -> None:
    before = [saving["images"] for saving in json.loads(get(several, "/v1/savings"))["tasks"]]
    for _ in range(20):
        classify(several)
    starts = set()
    for _ in range(8):  # whoever is asked
        metrics = get(several, "/metrics")
        starts.add(float(re.findall(r"^process_start_time_seconds (\S+)", metrics, re.M)[0]))
        assert float(re.findall(r"^fpet_processes (\S+)", metrics, re.M)[0]) == PROCESSES
        assert float(re.findall(r'^fpet_images_total{task="digits",tokens="reduced"} (\S+)', metrics, re.M)[0]) >= 20
        assert "\nfpet_ready 1.0\n" in metrics
        for tasks in ('fpet_tasks{state="loaded"}', "fpet_tasks_answering"):
            assert float(re.findall(rf"^{tasks} (\S+)", metrics, re.M)[0]) == 2
        savings = json.loads(get(several, "/v1/savings"))["tasks"]
        assert sum(saving["images"] for saving in savings) == sum(before) + 20
        statistics = json.loads(get(several, "/v2/models/digits/stats"))["model_stats"][0]
        assert statistics["inference_stats"]["success"]["count"] >= 20
    (start_of_all,) = starts
    assert 0 < time.time() - start_of_all < 3600  # a module's tests take minutes at most


def test_they_share_the_cores(several: Server) -> None:
    of = dict(re.findall(r'^fpet_parallelism{of="(\w+)"} (\S+)', get(several, "/metrics"), re.M))
    assert float(of["workers"]) * float(of["threads"]) <= share_of_cores(PROCESSES)


def test_their_sockets_are_their_own(several: Server) -> None:
    """Who started them holds none open: it would take connections when nobody is behind it any more."""
    listed = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listeners = {
        f"socket:[{fields[9]}]" for fields in map(str.split, listed) if fields[1].endswith(f":{several.port:04X}")
    }
    assert [len(listeners & set(open_files(pid))) > 0 for pid in answering(several)] == [True] * PROCESSES
    assert not listeners & set(open_files(several.pid))


def test_only_their_user_may_enter_the_folder_of_their_sockets(several: Server) -> None:
    listed = Path("/proc/net/unix").read_text().splitlines()
    held = {link for pid in answering(several) for link in open_files(pid)}
    paths = [Path(line.split()[7]) for line in listed if f"socket:[{line.split()[6]}]" in held and "/" in line]
    assert sorted({path.name for path in paths}) == ["0", "1"]
    assert {path.parent.stat().st_mode & 0o777 for path in paths} == {0o700}


def test_the_work_is_shared(several: Server) -> None:
    def seconds() -> list[float]:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in answering(several)]
        return [(int(one[11]) + int(one[12])) / os.sysconf("SC_CLK_TCK") for one in fields]

    give_up, before = time.monotonic() + SECONDS, seconds()
    assert len(before) == PROCESSES
    # A connection goes to one of them by its ports; asked often enough each has computed something.
    while not all(now > then for now, then in zip(seconds(), before, strict=True)):
        assert time.monotonic() < give_up
        classify(several)


def test_a_file_that_changes_is_served_by_all(several: Server, files: Files) -> None:
    old = classify(several)["digest"]
    backbone = small_backbone()
    write_task(files.tasks / "digits.safetensors", small_header(backbone), backbone, seed=1)
    give_up, seen = time.monotonic() + SECONDS, [old]
    while set(seen[-40:]) != {seen[-1]} or seen[-1] == old or len(seen) < 40:
        assert time.monotonic() < give_up
        seen.append(classify(several)["digest"])
    assert set(seen) == {old, seen[-1]}


def test_a_change_by_http_is_served_by_all_once_it_is_answered(several: Server, tmp_path: Path) -> None:
    for seed in range(2, 8):  # whoever is asked
        data = task_file(tmp_path, seed=seed)
        connection = http.client.HTTPConnection("127.0.0.1", several.port, timeout=60)
        connection.request("PUT", "/v1/tasks/digits", data, ADMIN)
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 0) == (200, True)
        connection.close()
        assert {classify(several)["digest"] for _ in range(8)} == {hashlib.sha256(data).hexdigest()}


def test_every_request_that_they_took_is_answered(small_files: Files, tmp_path: Path) -> None:
    server = start_several(small_files, tmp_path)
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(ask_until_refused, server.port, PATH) for _ in range(8)]
        while float(re.findall(r'requests_total{code="200",task="digits"} (\S+)', get(server, "/metrics"))[0]) < 40:
            pass
        os.kill(server.pid, signal.SIGTERM)
        seen: Counter[str] = sum((client.result() for client in clients), Counter())
    assert server.end() == -signal.SIGTERM
    assert set(seen) <= {"200", "closing"}
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_an_interrupt_ends_them(small_files: Files, tmp_path: Path) -> None:
    server = start_several(small_files, tmp_path)
    pids = answering(server)
    os.kill(server.pid, signal.SIGINT)
    await_end(server.pid)
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in a shell's background: all end, without a word
    assert server.end() == (0 if ignored else 130)
    assert not any(state(pid) for pid in pids)
    assert (tmp_path / "log").read_text() == ("" if ignored else "fpet: interrupted\n")


def test_if_one_ends_by_itself_all_end(small_files: Files, tmp_path: Path) -> None:
    server = start_several(small_files, tmp_path, "--device", "cpu", "--dtype", "auto", "--log-level", "info")
    pids = answering(server)
    os.kill(pids[0], signal.SIGKILL)
    await_end(server.pid)
    assert server.end() == 1
    assert not any(state(pid) for pid in pids)
    log = (tmp_path / "log").read_text()
    assert "ended with code -9, and so all end" in log
    assert log.count("of the speed of float32 here") == 1  # the number format was measured once for all


def test_one_that_crashes_while_they_end_has_failed(small_files: Files, tmp_path: Path) -> None:
    server = start_several(small_files, tmp_path)
    pids = answering(server)
    os.kill(server.pid, signal.SIGTERM)
    os.kill(pids[0], signal.SIGSEGV)
    await_end(server.pid)
    assert server.end() == 1


def test_they_do_not_outlive_who_started_them(small_files: Files, tmp_path: Path) -> None:
    server = start_several(small_files, tmp_path)
    pids = answering(server)
    os.kill(server.pid, signal.SIGKILL)
    await_end(*pids)
    server.kill()


def test_what_keeps_them_from_beginning_is_said_once(small_files: Files, tmp_path: Path) -> None:
    wrong = Files(tmp_path / "wrong.safetensors", small_files.tasks)
    wrong.backbone.write_bytes(b"no weights")
    with pytest.raises(StartError) as failed:
        start_several(wrong, tmp_path)
    (log,) = failed.value.__notes__
    assert log == f"fpet: {wrong.backbone}: neither safetensors, nor a torch checkpoint, nor an .npz archive\n"


def test_a_service_that_cannot_start_ends_with_a_code(small_files: Files, tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "bad.safetensors").write_bytes(b"no task")
    files = Files(small_files.backbone, tmp_path / "tasks")
    with pytest.raises(StartError):
        start_several(files, tmp_path)
    log = (tmp_path / "log").read_text()
    assert "tasks that are to be there cannot serve: bad" in log
    assert "ended with code 1, and so all end" in log


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--processes", "2", "--port", str(port)]) == 2
    said = f"--host '127.0.0.1' and --port {port}: Address already in use; give another --port"
    assert capsys.readouterr().err == f"fpet: {said}\n"
