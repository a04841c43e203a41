"""Whoever reached a server before it stopped accepting is served."""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import ExitStack

import pytest
from serving import Files, serving, small_settings

from service.http.close_listeners import close_listeners

_CLIENTS = 20


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(data)
        self.transport.close()


@pytest.mark.anyio
async def test_those_whom_only_the_system_has_accepted_are_served() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(_CLIENTS)]
        for client in clients:
            client.sendall(b"x")
        await close_listeners([server], _Echo)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=30)
        assert [await asyncio.to_thread(client.recv, 10) for client in clients] == [b"x"] * _CLIENTS


@pytest.mark.anyio
async def test_without_descriptors_they_are_closed_all_the_same() -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    address, before = server.sockets[0].getsockname(), resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as lowest:  # of the descriptors that were free: all below are taken
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest.fileno(), before[1]))
        try:
            await close_listeners([server], _Echo)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=30)


def test_a_connection_that_has_had_no_request_has_a_moment_for_one(small_files: Files) -> None:
    with serving(small_settings(small_files)) as service, socket.create_connection(service.address, timeout=30) as late:
        connections = service.server.server_state.connections
        service.until(lambda: service.on_loop(lambda: len(connections)) == 1)
        service.server.should_exit = True  # what SIGTERM sets
        (server,) = service.server.servers
        while service.on_loop(server.is_serving):
            pass
        late.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = late.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in answer
