"""The middleware of `Tasks`: who takes a request before any handler of the server's, or instead of one.

Every request comes by here, so this says who takes which, and nothing else. Checks are the guard's; streams for tasks
are those of `listen`, over the SDK's own handler; the tasks of 2025-11-25 are those of `legacy`; everything else goes
on.
"""

from __future__ import annotations

import logging

from mcp.server.context import CallNext, HandlerResult

from . import idempotency
from .capabilities import is_modern
from .guard import Guard
from .legacy import REVISION, Legacy, asks_for_task
from .listen import Listen
from .models import DISCOVER, LISTEN, RequestContext, names_tasks

__all__ = ["Middleware"]

logger = logging.getLogger(__name__)


class Middleware:
    """A `ServerMiddleware`. `legacy`: the adapter for the tasks of 2025-11-25, if it is on."""

    def __init__(self, guard: Guard, listen: Listen) -> None:
        self.guard = guard
        self.legacy: Legacy | None = None
        self.listen = listen
        self._hinted = False

    async def __call__(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is not None:
            if not is_modern(ctx):
                return await self._handshake(ctx, call_next)
            self.guard.check(ctx)
            if ctx.method == LISTEN and names_tasks(ctx.params):
                return await self.listen(ctx, call_next)
            if ctx.method == DISCOVER:
                return await self._discover(ctx, call_next)
        return await call_next(ctx)

    async def _discover(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        found = await call_next(ctx)
        return idempotency.advertised(found) if isinstance(found, dict) else found

    async def _handshake(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        if self.legacy is None:
            self._hint(ctx)
        elif self.legacy.takes(ctx):
            self.guard.check_content(ctx)
            return await self.legacy.answer(ctx)
        self.guard.check_handshake(ctx)
        self.guard.check_content(ctx)
        return await (call_next(ctx) if self.legacy is None else self.legacy.announce(ctx, call_next))

    def _hint(self, ctx: RequestContext) -> None:
        """Say once what the client can't find out: it hears nothing of the adapter, and waits for the whole call."""
        if not self._hinted and ctx.protocol_version == REVISION and asks_for_task(ctx):
            self._hinted = True
            logger.warning("a client asked for a task of revision 2025-11-25: Tasks(…, legacy=True) would serve it one")
