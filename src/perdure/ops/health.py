"""`GET /health`: whether this server is of use to those who send it requests.

That hangs on its store: a server that can't reach it is up, and answers each request with an error. So the store is
asked, for the least that it has to look for, and within a time that a balancer waits for.

It says no more than yes or no, since whoever reaches the port may ask. And it is about where to send requests, never
about whom to kill: a process whose database is away for a minute holds tools that go on running, and works again by
itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from mcp.server.mcpserver import MCPServer
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from perdure.domain.errors import StoreUnavailable

from .assembly import Assembly

__all__ = ["PATH", "looked", "offer"]

PATH: Final = "/health"
_PATIENCE: Final = 2.0
"""Seconds for the store's answer."""


def offer(app: MCPServer[Any], assembly: Assembly) -> None:
    """Have `app` answer at `PATH`, unless it has something else there: the first route wins."""

    async def health(_: Request) -> Response:
        return await looked(lambda: assembly.runtime.store.backlog(1), "the task store")

    app.custom_route(PATH, methods=["GET"], name="perdure-health")(health)


async def looked(ask: Callable[[], Awaitable[object]], what: str) -> Response:
    """200 if `ask` comes back in time; else 503, which says that `what` does not answer."""
    with anyio.move_on_after(_PATIENCE), suppress(StoreUnavailable):
        await ask()
        return _said("ok", 200)
    return _said(f"{what} does not answer", 503)


def _said(text: str, status: int) -> Response:
    return PlainTextResponse(f"{text}\n", status, {"Cache-Control": "no-store"})
