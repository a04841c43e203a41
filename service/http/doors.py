"""A server stops accepting without a reset for those whom the system has accepted for it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

_MOST = 2048  # that the system holds for Uvicorn's sockets: others may go on coming
_TURNS = 5  # of the event loop, more than it needs to make a connection of what it accepted


async def close_doors(servers: Sequence[asyncio.Server], protocol: Callable[[], asyncio.Protocol]) -> None:
    """Closes the servers' sockets; whoever waits there to be accepted by then is served by a protocol of this kind.

    Who comes between the last look and the close, microseconds later, is reset: the system has no way to refuse some
    and keep others.
    """
    loop = asyncio.get_running_loop()
    listening = [one.fileno() for server in servers for one in server.sockets]
    for one in listening:
        loop.remove_reader(one)
    for _ in range(_TURNS):  # or else a server that is closed drops them
        await asyncio.sleep(0)
    waiting = [connection for one in listening for connection in _accept_all(one)]
    for server in servers:
        server.close()
    accepting = (loop.connect_accepted_socket(protocol, connection) for connection in waiting)
    await asyncio.gather(*accepting, return_exceptions=True)  # such as those who have left again


def _accept_all(listening: int) -> list[socket.socket]:
    """The connections that wait at the socket of this number, as many as the system holds."""
    connections = []
    with socket.socket(fileno=os.dup(listening)) as door, suppress(OSError):
        door.setblocking(False)
        for _ in range(_MOST):
            connection, _ = door.accept()
            connection.setblocking(False)
            connections.append(connection)
    return connections
