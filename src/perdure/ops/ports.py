"""Binding a port before anything is said or started, so that one which can't be had is one line and no traceback.

A bound socket does not listen: nobody can connect until the server that gets it is up. uvicorn would bind by itself,
but only after the engine has started, and it reports a port that is taken as a log record in the middle of others.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Any, Final

__all__ = ["bind", "close", "reserved"]

_UNREAD: Final = 60_000
"""Milliseconds for which a client may leave what was sent to it unread."""

_Address = tuple[int, str]  # family and address


def bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of `host`, all on one port; `port` 0 takes any that is free.

    Raises:
        SystemExit: there is no such host here, or the port is not to be had; one line says what to do.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host):
            sockets.append(_bound(family, address, sockets[0].getsockname()[1] if sockets else port))
    except OSError as error:
        close(sockets)
        reason = (error.strerror or str(error)).lower()
        raise SystemExit(f"perdure: can't listen on {host}, port {port}: {reason}; choose another") from None
    return sockets


@contextmanager
def reserved(host: str) -> Generator[int]:
    """A port of `host` on which only those listen, one after the other, who are told it: nobody else is given it.

    It is bound all the while. On Linux who names a port can bind it all the same, if both sockets allow that (`bind`
    does) and no other listens; and nobody is given it who takes any that is free, nor a client's connection. Other
    systems refuse the second socket. There it is a port that was free just now.
    """
    sockets = bind(host, 0)
    try:
        port: int = sockets[0].getsockname()[1]
        if sys.platform != "linux":
            close(sockets)
        yield port
    finally:
        close(sockets)


def close(sockets: Iterable[socket.socket]) -> None:
    """Give the ports back."""
    for each in sockets:
        each.close()


def _addresses(host: str) -> list[_Address]:
    """Each once, in the resolver's order. Of a name, families that this machine has no use for are left out by it."""
    found = _resolved(host)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _resolved(host: str) -> list[Any]:
    # AI_ADDRCONFIG goes by what addresses there are besides those of loopback. So with IPv6 only it knows of no
    # 127.0.0.1, which is there all the same: an address is taken as it is, and a name that has no other is too.
    for narrowed in (socket.AI_NUMERICHOST, socket.AI_ADDRCONFIG):
        with suppress(socket.gaierror):
            return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | narrowed)
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)


def _bound(family: int, address: str, port: int) -> socket.socket:
    # Said to be TCP, though no other protocol comes into question: asyncio switches Nagle's algorithm off only where it
    # is, and with it on, a response whose body follows its headers waits 40 ms for the client's acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A server that was killed leaves connections in TIME_WAIT, and its successor must not wait for them.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a socket of its own
        if sys.platform == "linux":
            # Inherited by each connection. What is written for a client that has stopped reading stays with the kernel
            # and with asyncio, also once the connection was closed, and nothing above them can drop it.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD)
        bound.bind((address, port))
    except BaseException:
        bound.close()
        raise
    return bound
