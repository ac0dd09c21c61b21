"""What is set on a listening socket, as the clients of a server feel it."""

import asyncio
import socket
from contextlib import closing

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
