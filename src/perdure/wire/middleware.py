"""The middleware of `Tasks`: who takes a request before any handler of the server's, or instead of one.

Every request comes by here, so this says who takes which, and nothing else. Checks are the guard's; streams for tasks
are those of `listen`, over the SDK's own handler; the tasks of 2025-11-25 are those of `legacy`; everything else goes
on.
"""

from __future__ import annotations

from mcp.server.context import CallNext, HandlerResult

from .capabilities import is_modern
from .guard import Guard
from .legacy import Legacy
from .listen import Listen
from .models import LISTEN, RequestContext, names_tasks

__all__ = ["Middleware"]


class Middleware:
    """A `ServerMiddleware`. `legacy`: the adapter for the tasks of 2025-11-25, if it is on."""

    def __init__(self, guard: Guard, listen: Listen) -> None:
        self.guard = guard
        self.legacy: Legacy | None = None
        self.listen = listen

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is not None:
            if not is_modern(ctx):
                return await self._handshake(ctx, call_next)
            self.guard.check(ctx)
            if ctx.method == LISTEN and names_tasks(ctx.params):
                return await self.listen(ctx, call_next)
        return await call_next(ctx)

    async def _handshake(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if self.legacy is not None and self.legacy.takes(ctx):
            return await self.legacy.answer(ctx)
        self.guard.check_handshake(ctx)
        return await (call_next(ctx) if self.legacy is None else self.legacy.announce(ctx, call_next))
