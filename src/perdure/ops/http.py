"""Serving over HTTP until told to stop: uvicorn, which ends in time, and lets the worker know at once.

uvicorn ends in this order: no new connections, open requests to their end, the lifespan. A request may go on for ever
(a client that listens), so the second part is bounded; and the worker, whose end is the lifespan's, would go on to
claim tasks until then.

What the start-up made (modules, models, tools) lives as long as the server does, and is hidden from the garbage
collector meanwhile. Requests leave cycles behind, so it comes often, and it would look through all of that every few
hundred requests: a sixth of what a request costs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.config import LOG_LEVELS, LOGGING_CONFIG

from .leaving import DRAIN_SECONDS, STARTUP_FAILURE
from .one_piece import OnePiece

__all__ = ["HTTPServer", "announce", "listen"]

_LATE: Final = 0.05
"""Seconds between looks for connections that came in while the server was already shutting down."""

Serving = Coroutine[Any, Any, None]


async def _awaited(serving: Serving) -> None:
    await serving


def announce(name: str, host: str, sockets: list[socket.socket]) -> None:
    """Say to whoever starts it where `name` is served from now on."""
    where, port = f"[{host}]" if ":" in host else host, sockets[0].getsockname()[1]
    print(f"perdure: serving {name} on http://{where}:{port}/mcp", file=sys.stderr, flush=True)


def listen(
    app: Callable[..., Any],
    sockets: list[socket.socket],
    *,
    log_level: str,
    log_config: dict[str, Any] | None = LOGGING_CONFIG,
    told: Callable[[], None],
    last: Callable[[Serving], Serving] = _awaited,
) -> None:
    """Serve until told to stop. `told` is called on the loop as soon as that is; `last` wraps what runs on it.

    `log_config`: as uvicorn's; None leaves its messages to the program's own log.

    Raises:
        SystemExit: the application's lifespan failed, and uvicorn has said how.
    """
    config = uvicorn.Config(
        app,
        log_level=log_level,
        log_config=log_config,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        access_log=LOG_LEVELS[log_level] <= logging.INFO,  # a line that its level keeps back would be made all the same
        server_header=False,
    )
    server = HTTPServer(config, told, last)
    # After an orderly shutdown uvicorn raises the signal that asked for it again; for Ctrl-C that is this exception.
    with suppress(KeyboardInterrupt):
        server.run(sockets)
        if not server.started:  # the newer ones end like this themselves
            raise SystemExit(STARTUP_FAILURE)


class HTTPServer(uvicorn.Server):
    """uvicorn's, which ends in time, and whose start-up is no matter for the garbage collector."""

    def __init__(
        self, config: uvicorn.Config, told: Callable[[], None], last: Callable[[Serving], Serving] = _awaited
    ) -> None:
        if config.http == "auto":
            config.http = OnePiece
        super().__init__(config)
        self._told = told
        self._last = last
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._last(super().serve(sockets))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's."""
        await super().startup(sockets)
        gc.collect()  # what is garbage now would be kept
        gc.freeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn's: called by the signal, wherever the program is just then."""
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which asks only those connections to end that it knows at that moment.

        One that was still on its way in would be kept alive, hold the shutdown up for as long as that may take, and
        have its requests served past the end of the lifespan.
        """
        asking = asyncio.create_task(self._ask_latecomers(set(self.server_state.connections)))
        try:
            await super().shutdown(sockets)
        finally:
            asking.cancel()
            gc.unfreeze()

    async def _ask_latecomers(self, asked: set[object]) -> None:
        while True:
            await asyncio.sleep(_LATE)
            for connection in self.server_state.connections - asked:
                connection.shutdown()
                asked.add(connection)
