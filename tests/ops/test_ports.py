"""Which addresses a server listens on, and what is set on its sockets, as its clients feel it."""

import asyncio
import socket
from contextlib import closing
from typing import Any

import pytest

from perdure.ops import ports
from tests.support import PATIENCE


async def test_a_connection_whose_client_does_not_read_is_dropped_though_it_was_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ports, "_UNREAD", 200)
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[Exception | None] = loop.create_future()

    class Full(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(bytes(10_000_000))
            transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            lost.set_result(exc)

    (bound,) = ports.bind("127.0.0.1", 0)
    server = await loop.create_server(Full, sock=bound)
    async with server, asyncio.timeout(PATIENCE):
        with closing(socket.socket()) as client:
            client.setblocking(False)
            await loop.sock_connect(client, bound.getsockname())
            assert isinstance(await lost, TimeoutError)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_where_all_other_addresses_are_of_one_family_those_of_loopback_are_listened_on_all_the_same(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Such a machine's resolver, asked for what is configured, knows of no 127.0.0.1: it does not count loopback."""
    resolve = socket.getaddrinfo

    def with_ipv6_only(host: str, port: None, *, type: int, flags: int) -> list[Any]:
        if flags & socket.AI_ADDRCONFIG:
            raise socket.gaierror(socket.EAI_FAMILY, "Address family for hostname not supported")
        return [each for each in resolve(host, port, type=type, flags=flags) if each[0] == socket.AF_INET]

    monkeypatch.setattr(socket, "getaddrinfo", with_ipv6_only)
    (bound,) = ports.bind(host, 0)
    with closing(bound):
        assert bound.getsockname()[0] == "127.0.0.1"


def test_on_a_port_that_is_reserved_one_server_after_the_other_listens_and_nobody_is_given_it() -> None:
    with ports.reserved("127.0.0.1") as port:
        with closing(socket.socket()) as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        for _ in range(2):
            (bound,) = ports.bind("127.0.0.1", port)
            with closing(bound), socket.socket() as client:
                bound.listen()
                client.connect(("127.0.0.1", port))
                with bound.accept()[0]:
                    pass
        with closing(socket.socket()) as client, pytest.raises(ConnectionRefusedError):
            client.connect(("127.0.0.1", port))
    (bound,) = ports.bind("127.0.0.1", port)
    ports.close([bound])
