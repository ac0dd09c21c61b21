"""Whether a client of the handshake era is still there that waits for an answer.

The SDK tells a handler of that era nothing when its client hangs up: the client may come back for the answer, if there
is a place where it is kept (an `event_store`). Without one it is for nobody, and what waits for it has to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import anyio
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from starlette.requests import Request

from .models import RequestContext

__all__ = ["given_up", "while_it_waits"]

_UNWIND: Final = 5.0
"""Seconds that what was cancelled has for its end."""

T = TypeVar("T")


async def while_it_waits(ctx: RequestContext, answering: Coroutine[Any, Any, T], look_every: float) -> T:
    """What `answering` comes to, unless the client hangs up before; seen within `look_every` seconds.

    Raises:
        MCPError: it hung up. Nobody reads this.
    """
    watched = _awaited(ctx)
    answer = asyncio.create_task(answering)
    try:
        while not (await asyncio.wait({answer}, timeout=None if watched is None else look_every))[0]:
            if watched is not None and await watched.is_disconnected():
                raise MCPError(INVALID_REQUEST, "The client hung up")
        return answer.result()
    finally:
        await given_up(answer)


async def given_up(*tasks: asyncio.Task[Any]) -> None:
    """Cancel them, and wait until they have ended; not for ever, since one may be a user's code that does not mind."""
    for task in tasks:
        task.cancel()
    with anyio.move_on_after(_UNWIND, shield=True):
        await asyncio.wait(tasks)


def _awaited(ctx: RequestContext) -> Request | None:
    """The HTTP request whose response is the answer, if it has to be there for that.

    Over pipes there is none, and the connection's end cancels us. With an `event_store` the client may come back. And
    in the transport from before Streamable HTTP the answer goes over another response: each request is over at once.
    """
    http: Request | None = ctx.request
    return None if http is None or ctx.close_sse_stream is not None or _answers_elsewhere(ctx, http) else http


def _answers_elsewhere(ctx: RequestContext, http: Request) -> bool:
    """Whether it came by that transport: in a session, whose client can be asked, and which is named in the query.

    A client may write there what it likes; but the sessions of Streamable HTTP are named by a header.
    """
    named = "session_id" in http.query_params and MCP_SESSION_ID_HEADER not in http.headers
    return named and ctx.session.can_send_request
