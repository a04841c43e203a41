"""Closes listening sockets without resetting connections that wait in their accept queues."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

_BACKLOG = 2048  # connections in the accept queue of Uvicorn's sockets; new ones may go on arriving
_ITERATIONS = 5  # of the event loop: more than it needs to make a connection of what it has accepted


async def close_listeners(servers: Sequence[asyncio.Server], protocol: Callable[[], asyncio.Protocol]) -> None:
    """Accepts every connection that waits in an accept queue, each served by a new `protocol`, and closes the sockets.

    A connection that arrives between the last accept and the close, microseconds later, is reset: the system has no way
    to refuse new connections and keep those that wait.
    """
    loop = asyncio.get_running_loop()
    listening = [one.fileno() for server in servers for one in server.sockets]
    for one in listening:
        loop.remove_reader(one)
    for _ in range(_ITERATIONS):  # a server that is closed drops what it accepted and has not made a connection of yet
        await asyncio.sleep(0)
    waiting = [connection for one in listening for connection in _accept_all(one)]
    for server in servers:
        server.close()
    accepting = (loop.connect_accepted_socket(protocol, connection) for connection in waiting)
    await asyncio.gather(*accepting, return_exceptions=True)  # clients may have closed their ends meanwhile


def _accept_all(listening: int) -> list[socket.socket]:
    """The connections in the accept queue of the socket with this file descriptor, at most `_BACKLOG`; fewer if there
    are no descriptors for them."""
    connections = []
    with suppress(OSError), socket.socket(fileno=os.dup(listening)) as listener:
        listener.setblocking(False)
        for _ in range(_BACKLOG):
            connection, _ = listener.accept()
            connection.setblocking(False)
            connections.append(connection)
    return connections
