"""One process of the service, in which an event loop answers requests beside threads that compute."""

from __future__ import annotations

import gc
import socket
import sys

from prometheus_client import disable_created_metrics

from fpet.hardware.allocator import keep_freed_memory, return_freed_memory
from service.app import create_app
from service.ending import FAILED
from service.http.server import Server
from service.logs import configure
from service.processes.peers import ALONE, Peers
from service.settings import Settings

# A forward that comes back from an operator waits so long for the event loop to let go of the interpreter: a tenth of
# Python's default.
_SWITCH_SECONDS = 0.0005
# Objects made and not yet freed before a collection looks at them. The default is what five requests on their way hold.
_YOUNG = 10_000


def prepare(settings: Settings, peers: Peers = ALONE) -> Server:
    """Loads the service and returns the server, which does not listen yet.

    Raises:
        FpetError: if the backbone or the task folder cannot be used.
    """
    configure(settings.log_level, settings.log_format)
    server = Server(create_app(settings, peers), settings)
    settle()
    return server


def serve(server: Server, sockets: list[socket.socket] | None = None) -> int:
    """Serves until a signal; returns the exit code, 1 if the service could not start. The process ends with the same
    code if threads of the service do not end.

    sockets: to listen on, for a process that is one of several; else those of the settings' address.
    """
    server.run(sockets)
    return FAILED if server.failed else 0


def settle() -> None:
    """Tunes the interpreter for serving; to be called once, when modules and the backbone are loaded.

    The garbage collector walks all objects from time to time, while every thread waits. torch and what it brings are
    hundreds of thousands, none of them garbage ever; from here on they are left out.

    Metrics come without the series that say when each began: they were as many again, and Prometheus sees it itself.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)
    return_freed_memory()
    keep_freed_memory()
