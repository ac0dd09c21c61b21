"""Commands that run in the test's own event loop, beside what is done to them; and a server that takes its time."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from perdure.ops.calling import calls
from perdure.ops.calling.calls import CallRequest
from perdure.ops.calling.desk import Desk
from perdure.ops.calling.endpoint import parse_url
from perdure.ops.calling.outcome import Outcome
from tests.support import PATIENCE
from tests.wire.support import Stage


class Held:
    """A middleware that holds requests of these methods until they are `freed`."""

    def __init__(self) -> None:
        self.methods: set[str] = set()
        self.freed = asyncio.Event()

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method in self.methods:
            await self.freed.wait()
        return await call_next(ctx)


@asynccontextmanager
async def doing(work: Coroutine[Any, Any, Sequence[Outcome]]) -> AsyncGenerator[asyncio.Task[Sequence[Outcome]]]:
    """A command that runs beside the block, and is done with it."""
    task = asyncio.create_task(work)
    try:
        yield task
        async with asyncio.timeout(PATIENCE):
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


def call(scene: Stage, desk: Desk, tool: str, **options: Any) -> Coroutine[Any, Any, Sequence[Outcome]]:
    return calls.call(desk, CallRequest(parse_url(scene.client.url), tool, **options))


async def detached(scene: Stage, desk: Desk, tool: str) -> str:
    (outcome,) = await call(scene, desk, tool, detach=True)
    assert outcome.id is not None
    return outcome.id
