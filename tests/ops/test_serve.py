"""A server's heap while it serves, and its end, of which every connection hears."""

import asyncio
import gc
import socket
from typing import Any

import uvicorn

from perdure.ops.http import HTTPServer
from tests.support import PATIENCE


async def _app(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is asked of it")


async def test_the_garbage_collector_passes_over_what_the_start_up_made_until_the_end() -> None:
    config = uvicorn.Config(_app, lifespan="off", log_level="warning")
    config.load()
    server = HTTPServer(config, lambda: None)
    server.lifespan = config.lifespan_class(config)
    listener = socket.create_server(("127.0.0.1", 0))
    await server.startup([listener])
    try:
        assert gc.get_freeze_count() > 0
    finally:
        await server.shutdown([listener])
    assert gc.get_freeze_count() == 0


async def test_a_connection_that_comes_in_during_the_shutdown_is_closed_as_well() -> None:
    config = uvicorn.Config(_app, lifespan="off", log_level="warning", timeout_graceful_shutdown=10)
    config.load()
    server = HTTPServer(config, lambda: None)
    server.lifespan = config.lifespan_class(config)
    server.servers = []
    held, here = socket.socketpair()
    late, there = socket.socketpair()
    loop = asyncio.get_running_loop()

    def protocol() -> asyncio.Protocol:
        made: Any = config.http_protocol_class
        return made(config=config, server_state=server.server_state, app_state={})

    with held, late:
        await loop.connect_accepted_socket(protocol, here)
        shutting_down = asyncio.create_task(server.shutdown())
        await asyncio.sleep(0)  # it has asked those that it knows
        await loop.connect_accepted_socket(protocol, there)
        for client in (held, late):
            client.setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(client, 1), PATIENCE) == b""
        await asyncio.wait_for(shutting_down, PATIENCE)
