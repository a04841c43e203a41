"""What is cut off when the service stops is answered, and logged and traced as any request."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys

from serving import Files

from service.http.request_id import HEADER


def test_who_is_cut_off_is_in_the_log(small_files: Files) -> None:
    """Of a process that the signal ends as soon as the server has stopped."""
    command = [sys.executable, "-m", "fpet.cli", "serve", "--port", "0", "--log-format", "json"]
    command += ["--backbone", str(small_files.backbone), "--tasks", str(small_files.tasks), "--dtype", "float32"]
    command += ["--threads", "1", "--calibration-repeats", "0", "--max-batch", "4"]
    command += ["--shutdown-delay", "0", "--drain-seconds", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        port = 0
        for line in process.stderr:
            if found := re.search(r" running on http://.*:(\d+)", line):
                port = int(found[1])
            if '"ready: ' in line:
                break
        waiting = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(4)]
        for name, connection in enumerate(waiting):
            connection.putrequest("POST", "/v1/tasks/digits/classify")
            for header in {HEADER: f"cut-{name}", "content-type": "image/png", "content-length": "1000"}.items():
                connection.putheader(*header)
            connection.endheaders(b"x")
        process.send_signal(signal.SIGTERM)
        assert [connection.getresponse().status for connection in waiting] == [503] * 4
        log = [json.loads(line) for line in process.stderr]
        for connection in waiting:
            connection.close()
    told = {line["request_id"]: (line["status"], line["error_type"]) for line in log if "request_id" in line}
    assert told == {f"cut-{name}": (503, "not_ready") for name in range(4)}
