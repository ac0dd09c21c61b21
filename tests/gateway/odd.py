"""A backend that is well but for what a test has it say: of itself, in a list, on a stream, or to a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.gateway import raw_backend
from tests.gateway.raw_backend import CAPABILITIES, Asked, event, liar, response, result, stream
from tests.gateway.support import Front, fronting
from tests.wire.support import Stage

__all__ = ["HANDLE", "Odd", "beside", "is_well"]

HANDLE: Any = raw_backend.HANDLE | {"pollIntervalMs": 100}


class Odd:
    """`capabilities`, `tools`: what it says of itself, and lists. `said`: the frames of each stream that is listened
    to, without its end; None: it can't listen. `snapshot`: what `tasks/get` shows; `handle`: what a call becomes.

    `page`: called for each `tools/list` in place of `tools`, after `before_a_page`. `asked`: the methods that came.
    """

    def __init__(
        self,
        *,
        capabilities: Any = None,
        tools: Any = (),
        said: Callable[[Asked], list[Any]] | None = None,
        snapshot: Any = HANDLE,
        handle: Any = HANDLE,
        page: Callable[[Asked], Any] | None = None,
        before_a_page: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.capabilities: Any = CAPABILITIES if capabilities is None else capabilities
        self.tools: Any = [*tools]
        self.said = said
        self.snapshot = snapshot
        self.handle = handle
        self.page = page or self._whole
        self.before_a_page = before_a_page
        self.asked: list[str] = []

    def _whole(self, asked: Asked) -> Any:
        return result(asked, ttlMs=60_000, cacheScope="public", tools=self.tools)

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        method = asked.message["method"]
        self.asked.append(method)
        match method:
            case "server/discover":
                about: Any = {"supportedVersions": ["2026-07-28"], "capabilities": self.capabilities}
                writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", **about)))
            case "tools/list":
                await self.before_a_page() if self.before_a_page else None
                writer.write(response(self.page(asked)))
            case "tools/call":
                writer.write(response(result(asked, **self.handle)))
            case "tasks/get":
                writer.write(response(result(asked, **{**self.snapshot, "resultType": "complete"})))
            case "subscriptions/listen" if self.said is not None:
                writer.write(stream(*(event(each) for each in self.said(asked)), end=False))
                await writer.drain()
                await asyncio.Event().wait()
            case _:
                writer.write(response(result(asked)))
        await writer.drain()


@asynccontextmanager
async def beside(good: Stage, odd: Odd, more: str = "", **tables: Any) -> AsyncGenerator[Front]:
    """A gateway before a good backend and an odd one."""
    async with (
        liar(odd.answer) as lying,
        fronting({"odd": lying.url, "good": good.client.url}, more, **tables) as front,
    ):
        yield front


async def is_well(front: Front) -> None:
    """That the gateway serves, and the other backend's tools are there."""
    assert "good_hello" in [tool["name"] for tool in (await front.client.request("tools/list")).result["tools"]]
    assert (await front.client.finish("good_hello", {"name": "Ada"}))["status"] == "completed"
