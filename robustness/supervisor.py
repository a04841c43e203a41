"""Keeps the service running: who is killed starts again, and everybody can tell whether that explains what they saw."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from robustness.process import Usage
from robustness.service import Service


@dataclass(frozen=True)
class Life:
    """What a process held when it became ready, and just before its end."""

    ready: Usage
    end: Usage


@dataclass(frozen=True)
class Moment:
    """starts: how often the service was started until then; up: whether it then ran."""

    starts: int
    up: bool


class Supervisor:
    """Starts, kills and stops a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.lives: list[Life] = []
        self._moment = Moment(0, up=False)
        self._may_kill = True
        self._lock = threading.Lock()

    def now(self) -> Moment:
        """To be compared with a later moment."""
        return self._moment

    def disturbed(self, since: Moment) -> bool:
        """Whether a kill explains a connection that was lost since then."""
        now = self._moment
        return not (since.up and now.up and since.starts == now.starts)

    def start(self) -> None:
        """Returns once the service is ready."""
        self.service.start()
        self._ready = self.service.usage()
        self._moment = Moment(self._moment.starts + 1, up=True)

    def kill_and_start(self) -> bool:
        """As a machine that loses power; False, and nothing happens, once the service is spared."""
        with self._lock:
            if self._may_kill:
                self._end()
                self.service.kill()
                self.start()
            return self._may_kill

    def spare(self) -> None:
        """From now on the service is not killed; returns once it runs."""
        with self._lock:
            self._may_kill = False

    def stop(self) -> int:
        """As a deployment does; the exit status."""
        self._end()
        return self.service.stop()

    def _end(self) -> None:
        self.lives.append(Life(self._ready, self.service.usage()))
        self._moment = Moment(self._moment.starts, up=False)
