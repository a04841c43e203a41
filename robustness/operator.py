"""The operator of a soak: tasks are put, dropped into the folder, damaged, unloaded and deleted; the disk fills up."""

from __future__ import annotations

import errno
import http.client
import json
import os
import time
from collections.abc import Sequence
from random import Random
from threading import Event

from robustness.ledger import Ledger
from robustness.service import AUTHORIZATION
from robustness.supervisor import Supervisor
from robustness.versions import Subject, Version

_TAKEN_UP = 30.0  # seconds in which the service follows its folder, on a busy machine too
_ASK_AGAIN = 0.1
_BETWEEN = 0.2
_SUFFIX = ".safetensors"
_FILLER = "filler"


class Operator:
    """Changes the changing subjects until told to stop. full: whether the task folder's disk may be filled."""

    def __init__(self, supervisor: Supervisor, changing: Sequence[Subject], ledger: Ledger, *, full: bool) -> None:
        self._supervisor = supervisor
        self._service = supervisor.service
        self._folder = supervisor.service.tasks
        self._changing = changing
        self._ledger = ledger
        self._ways = [self._put, self._put, self._drop, self._copy_slowly, self._damage, self._put_damaged]
        self._ways += [self._put_cut_short, self._unload, self._delete, self._pin]
        if full:
            self._ways.append(self._fill_disk)

    def run(self, random: Random, stop: Event, kill_every: float) -> None:
        """One change after the other; about every `kill_every` seconds, until it is spared, the service is killed."""
        due = time.monotonic() + kill_every
        while not stop.is_set():
            if time.monotonic() > due:
                if self._supervisor.kill_and_start():
                    self._ledger.count("killed and started")
                due = time.monotonic() + kill_every * random.uniform(0.5, 1.5)
            subject = random.choice(self._changing)
            way = random.choice(self._ways)
            try:
                way(subject, random.choice(subject.versions))
            except (OSError, http.client.HTTPException) as error:
                self._ledger.fail(f"{way.__name__}: {error!r}")
            stop.wait(_BETWEEN)

    def _put(self, subject: Subject, version: Version) -> None:
        """What is asked afterwards is answered by the new version."""
        self._expect({200, 201}, "PUT", f"/v1/tasks/{subject.name}", version.data)
        self._expect_serving(subject, version)
        self._ledger.count("swapped by PUT")

    def _put_damaged(self, subject: Subject, version: Version) -> None:
        self._expect({422}, "PUT", f"/v1/tasks/{subject.name}", version.data[:-9])
        self._ledger.count("damaged file refused")

    def _put_cut_short(self, subject: Subject, version: Version) -> None:
        """An upload whose client goes away."""
        connection = http.client.HTTPConnection("127.0.0.1", self._service.port, timeout=60)
        connection.putrequest("PUT", f"/v1/tasks/{subject.name}")
        for name, value in {**AUTHORIZATION, "content-length": str(len(version.data))}.items():
            connection.putheader(name, value)
        connection.endheaders(version.data[: len(version.data) // 2])
        connection.close()
        self._ledger.count("upload of a task cut short")

    def _drop(self, subject: Subject, version: Version) -> None:
        """A file that is moved into the folder."""
        hidden = self._folder / f".{subject.name}.new"
        hidden.write_bytes(version.data)
        hidden.replace(self._folder / f"{subject.name}{_SUFFIX}")
        self._taken_up(subject, version)

    def _copy_slowly(self, subject: Subject, version: Version) -> None:
        """A file that is written in place, half by half."""
        half = len(version.data) // 2
        with (self._folder / f"{subject.name}{_SUFFIX}").open("wb", buffering=0) as file:
            file.write(version.data[:half])
            time.sleep(_BETWEEN)
            file.write(version.data[half:])
        self._taken_up(subject, version)

    def _damage(self, subject: Subject, version: Version) -> None:
        """A damaged file takes nothing out of service; a whole one repairs it."""
        before = self._digest(subject)
        (self._folder / f"{subject.name}{_SUFFIX}").write_bytes(version.data[:-9])
        time.sleep(_BETWEEN)
        if self._digest(subject) != before:
            self._ledger.fail(f"a damaged file took {subject.name} out of service")
        self._ledger.count("damaged file dropped")
        self._drop(subject, version)

    def _unload(self, subject: Subject, version: Version) -> None:
        """In the middle of requests."""
        if self._digest(subject) is None:
            self._put(subject, version)
        for change in ("unload", "load"):
            self._expect({200}, "POST", f"/v1/tasks/{subject.name}/{change}")
        self._ledger.count("unloaded and loaded")

    def _delete(self, subject: Subject, version: Version) -> None:
        self._expect({204, 404}, "DELETE", f"/v1/tasks/{subject.name}")
        self._ledger.count("deleted")
        self._put(subject, version)

    def _pin(self, subject: Subject, version: Version) -> None:
        """Folded and back, which tasks may refuse."""
        self._put(subject, version)
        for method in ("POST", "DELETE"):
            self._expect({200, 409, 422}, method, f"/v1/tasks/{subject.name}/pin")
        self._ledger.count("pinned and unpinned")

    def _fill_disk(self, subject: Subject, version: Version) -> None:
        """What cannot be stored is refused, and what served before goes on."""
        self._put(subject, version)
        filler = self._folder / _FILLER
        try:
            _write_until_full(filler)
            others = [other for other in subject.versions if other is not version]
            self._expect({507}, "PUT", f"/v1/tasks/{subject.name}", others[0].data)
            self._expect_serving(subject, version)
        finally:
            filler.unlink(missing_ok=True)
        self._ledger.count("disk filled")

    def _taken_up(self, subject: Subject, version: Version) -> None:
        give_up = time.monotonic() + _TAKEN_UP
        while self._digest(subject) != version.digest:
            if time.monotonic() > give_up:
                self._ledger.fail(f"{subject.name}: a file in the folder was not taken up")
                return
            time.sleep(_ASK_AGAIN)
        self._ledger.count("swapped by the folder")

    def _expect_serving(self, subject: Subject, version: Version) -> None:
        if (found := self._digest(subject)) != version.digest:
            self._ledger.fail(f"{subject.name}: {found} serves instead of {version.digest}")

    def _digest(self, subject: Subject) -> str | None:
        """Of what answers; None if nothing does."""
        status, body = self._service.request("GET", f"/v1/tasks/{subject.name}")
        digest: str | None = json.loads(body).get("digest") if status == 200 else None
        return digest

    def _expect(self, statuses: set[int], method: str, path: str, body: bytes | None = None) -> None:
        status, answer = self._service.request(method, path, body, AUTHORIZATION)
        self._ledger.count("changes asked for")
        if status not in statuses:
            self._ledger.fail(f"{method} {path}: {status} instead of {statuses}: {answer[:200]!r}")


def _write_until_full(path: os.PathLike[str]) -> None:
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123
        for size in (2**16, 2**10, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
