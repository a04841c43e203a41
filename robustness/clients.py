"""Clients of a soak: most ask and check what they are answered, some leave, cut their upload short, or are slow."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from threading import Event

from robustness.ledger import Ledger
from robustness.supervisor import Moment, Supervisor
from robustness.versions import Subject

_TIMEOUT = 60.0
_PIECES, _PAUSE = 10, 0.1
_DEADLINE = "20000"  # milliseconds
_REFUSALS = {404: "task deleted", 429: "overloaded", 503: "task unloaded", 504: "deadline"}
_TAKEN_AWAY = (404, 503)
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset


@dataclass(frozen=True)
class _Question:
    """An image, by its number, for a task; asked: when."""

    subject: Subject
    image: int
    asked: Moment

    @property
    def data(self) -> bytes:
        return self.subject.images[self.image]

    @property
    def path(self) -> str:
        return f"/v1/tasks/{self.subject.name}/classify"

    def head(self) -> bytes:
        return (
            f"POST {self.path} HTTP/1.1\r\nhost: service\r\ncontent-type: image/png\r\nconnection: close\r\n"
            f"content-length: {len(self.data)}\r\n\r\n"
        ).encode()


class Client:
    """Asks until it is told to stop. steady: name of the task that nobody takes away."""

    def __init__(self, supervisor: Supervisor, subjects: Sequence[Subject], steady: str, ledger: Ledger) -> None:
        self._supervisor = supervisor
        self._subjects = subjects
        self._steady = steady
        self._ledger = ledger

    def run(self, random: Random, stop: Event) -> None:
        """Sends one request after the other."""
        ways = [self._ask] * 17 + [self._leave, self._cut_short, self._trickle]
        while not stop.is_set():
            subject = random.choice(self._subjects)
            image = random.randrange(len(subject.images))
            moment = self._supervisor.now()
            self._ledger.count("sent")
            try:
                random.choice(ways)(_Question(subject, image, moment))
            except (OSError, http.client.HTTPException) as error:
                if not self._supervisor.disturbed(moment):
                    self._ledger.fail(f"connection lost: {error!r}")
                self._ledger.count("refused: service killed")
                stop.wait(_PAUSE)

    def _ask(self, question: _Question) -> None:
        connection = self._connection()
        try:
            headers = {"content-type": "image/png", "x-deadline-ms": _DEADLINE}
            connection.request("POST", question.path, question.data, headers)
            self._judge(question, connection.getresponse())
        finally:
            connection.close()

    def _leave(self, question: _Question) -> None:
        """Sends all and does not wait for the answer."""
        with self._socket() as raw:
            raw.sendall(question.head() + question.data)
        self._ledger.count("left without the answer")

    def _cut_short(self, question: _Question) -> None:
        """Announces more than it sends."""
        with self._socket() as raw:
            raw.sendall(question.head() + question.data[:50])
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._ledger.count("cut short")

    def _trickle(self, question: _Question) -> None:
        """Sends the body in pieces, and expects the same answer."""
        data = question.data
        size = -(-len(data) // _PIECES)
        with self._socket() as raw:
            raw.sendall(question.head())
            try:
                for start in range(0, len(data), size):
                    raw.sendall(data[start : start + size])
                    time.sleep(_PAUSE)
            except ConnectionError:  # a task that is gone is refused at once, without the rest of the body
                if question.subject.name == self._steady:
                    raise
                self._ledger.count("refused: before the body was sent")
                return
            answer = http.client.HTTPResponse(raw)
            answer.begin()
            self._judge(question, answer)
        self._ledger.count("sent slowly")

    def _judge(self, question: _Question, answer: http.client.HTTPResponse) -> None:
        body, status, subject = answer.read(), answer.status, question.subject
        if status == 200:
            document = json.loads(body)
            problem = subject.judge(document["digest"], question.image, document["predictions"][0][0]["label"])
            self._ledger.count("answered")
            if problem is not None:
                self._ledger.fail(f"wrong answer: {problem}")
        elif status == 503 and self._supervisor.disturbed(question.asked):
            self._ledger.count("refused: service starting")
            time.sleep(_PAUSE)
        elif status in _REFUSALS and not (subject.name == self._steady and status in _TAKEN_AWAY):
            self._ledger.count(f"refused: {_REFUSALS[status]}")
        else:
            self._ledger.fail(f"{subject.name}: {status} {body[:200]!r}")

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._supervisor.service.port, timeout=_TIMEOUT)

    def _socket(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._supervisor.service.port), timeout=_TIMEOUT)
