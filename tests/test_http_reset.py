"""Of a connection that its client resets, nothing is kept."""

from __future__ import annotations

import socket
import struct

from serving import Serving

AT_ONCE = struct.pack("ii", 1, 0)  # closing is resetting
REQUEST = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"


def test_an_idle_connection_that_is_reset_leaves_no_timer(service: Serving) -> None:
    def connections() -> set[object]:
        return set(service.server.server_state.connections)

    before = service.on_loop(connections)
    with socket.create_connection(service.address) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        connection.sendall(REQUEST)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        (protocol,) = service.on_loop(connections) - before
    service.until(lambda: service.on_loop(lambda: protocol not in connections()))
    assert service.on_loop(lambda: protocol.timeout_keep_alive_task) is None  # type: ignore[attr-defined]
