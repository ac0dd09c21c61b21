"""Whether a client of the handshake era is still there that waits for an answer.

The SDK tells a handler of that era nothing when its client hangs up: the client may come back for the answer, if there
is a place where it is kept (an `event_store`). Without one it is for nobody, and what waits for it has to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from .models import RequestContext

__all__ = ["while_it_waits"]

T = TypeVar("T")


async def while_it_waits(ctx: RequestContext, answering: Coroutine[Any, Any, T], look_every: float) -> T:
    """What `answering` comes to, unless the client hangs up before; seen within `look_every` seconds.

    Over pipes the connection's end cancels us. An HTTP request that is over by now is answered elsewhere (the SSE
    transport), so nothing is to be seen of that.

    Raises:
        MCPError: it hung up. Nobody reads this.
    """
    http = ctx.request
    answer = asyncio.create_task(answering)
    try:
        watched = http is not None and ctx.close_sse_stream is None and not await http.is_disconnected()
        while not (await asyncio.wait({answer}, timeout=look_every if watched else None))[0]:
            if http is not None and await http.is_disconnected():
                raise MCPError(INVALID_REQUEST, "The client hung up")
        return answer.result()
    finally:
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
