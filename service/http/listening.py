"""Listening sockets; addresses are checked and bound before anything is loaded."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from fpet.errors import UnsupportedError

_NOT_HERE = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # as those of IPv6, where there is none


def require_free(host: str, port: int) -> None:
    """Checks that the address can be bound.

    Raises:
        UnsupportedError: if another process listens there, the port needs privileges, or the host has no address here.
    """
    for one in bind(host, port):
        one.close()


def bind(host: str, port: int, *, shared: bool = False) -> list[socket.socket]:
    """A bound socket for each address of the host that this machine has.

    port: 0 for a free one, the same at all addresses. shared: processes of the same user can bind further sockets to
    the address (SO_REUSEPORT); the system gives each connection to one of those that listen.

    Raises:
        UnsupportedError: if no address can be bound, or one is taken by another process.
    """
    sockets: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, "no address")
    for family, kind, protocol, place in _places(host, port):
        try:
            sockets.append(_bind(family, kind, protocol, (place[0], port, *place[2:]), shared=shared))
            port = sockets[0].getsockname()[1]  # the free one, if it was 0
        except OSError as error:
            missing = error
            if error.errno not in _NOT_HERE:
                break
    else:
        if sockets:
            return sockets
    for one in sockets:
        one.close()
    raise _unusable(host, port, missing)


@contextmanager
def claimed(host: str, sockets: Sequence[socket.socket]) -> Iterator[None]:
    """Claims the addresses of the sockets until the end of the block, or of the process, however it ends.

    A shared address is open to others that share it, and to everybody until its sockets listen; a claim keeps another
    service away. Claims are Unix sockets with abstract names: they are no files, and belong to the network namespace of
    the addresses.

    host: that of the sockets, for the error.

    Raises:
        UnsupportedError: if another process has claimed one of the addresses.
    """
    with ExitStack() as stack:
        for address, port in (one.getsockname()[:2] for one in sockets):
            claim = stack.enter_context(socket.socket(socket.AF_UNIX))
            try:
                claim.bind(f"\0fpet-serve {address} {port}")
            except OSError as error:
                raise _unusable(host, port, error) from error
        yield


def _places(host: str, port: int) -> Iterable[tuple[int, int, int, Any]]:
    """Family, kind, protocol and address, each once; raises UnsupportedError if the host has none."""
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UnsupportedError(f"--host {host!r} has no address: {error}") from error
    return dict.fromkeys((family, kind, protocol, address) for family, kind, protocol, _, address in places)


def _bind(family: int, kind: int, protocol: int, address: Any, *, shared: bool) -> socket.socket:
    one = socket.socket(family, kind, protocol)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
    except BaseException:
        one.close()
        raise
    return one


def _unusable(host: str, port: int, error: OSError) -> UnsupportedError:
    instead = "; give another --port" if error.errno == errno.EADDRINUSE else ""
    return UnsupportedError(f"--host {host!r} and --port {port}: {error.strerror}{instead}")
