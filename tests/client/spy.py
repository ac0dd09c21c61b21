"""A middleware that sees what a server is asked and when, and that may answer in its place."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError

Answer = Callable[[dict[str, Any]], HandlerResult]


@dataclass(frozen=True)
class Asked:
    """A request: when it came and when its answer left, by the loop's clock."""

    method: str
    params: dict[str, Any]
    came: float
    left: float
    headers: dict[str, str]


@dataclass
class Spy:
    """`refuse` raises instead of an answer; `change` makes another one of it; both by method.

    `open` counts the requests that are being served, by method, and `most` what that was at most. `cut` breaks off the
    streams that are open.
    """

    refuse: dict[str, Callable[[dict[str, Any]], MCPError | None]] = field(
        default_factory=dict[str, Callable[[dict[str, Any]], MCPError | None]]
    )
    change: dict[str, Answer] = field(default_factory=dict[str, Answer])
    asked: list[Asked] = field(default_factory=list[Asked])
    came: Counter[str] = field(default_factory=Counter[str])
    open: Counter[str] = field(default_factory=Counter[str])
    most: Counter[str] = field(default_factory=Counter[str])
    _streams: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        method, params = ctx.method, dict(ctx.params or {})
        came = asyncio.get_running_loop().time()
        self.came[method] += 1
        self.open[method] += 1
        self.most[method] = max(self.most[method], self.open[method])
        try:
            return await self._answer(ctx, call_next, method, params)
        finally:
            self.open[method] -= 1
            headers = {} if ctx.request is None else dict(ctx.request.headers)
            self.asked.append(Asked(method, params, came, asyncio.get_running_loop().time(), headers))

    async def _answer(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext, method: str, params: dict[str, Any]
    ) -> HandlerResult:
        refused = self.refuse.get(method, lambda _: None)(params)
        if refused is not None:
            raise refused
        if method == "subscriptions/listen":
            return await self._stream(ctx, call_next)
        answer = await call_next(ctx)
        if method in self.change and isinstance(answer, dict):
            return self.change[method](answer)
        return answer

    async def _stream(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        stream = asyncio.ensure_future(call_next(ctx))
        self._streams.add(stream)
        try:
            await asyncio.wait([stream])
            if stream.cancelled():
                raise MCPError(-32000, "cut off")
            return stream.result()
        finally:
            stream.cancel()
            self._streams.discard(stream)

    def cut(self) -> None:
        for stream in self._streams:
            stream.cancel()

    def gaps(self, method: str) -> list[float]:
        """Seconds from each answer about a task to the next request about it."""
        by_task: dict[str, list[Asked]] = {}
        for one in self.asked:
            if one.method == method:
                by_task.setdefault(one.params["taskId"], []).append(one)
        return [
            later.came - earlier.left for of_one in by_task.values() for earlier, later in itertools.pairwise(of_one)
        ]


def always(code: int, message: str, data: Any = None) -> Callable[[dict[str, Any]], MCPError]:
    return lambda _: MCPError(code, message, data)


def at_first(times: int, code: int, message: str, data: Any = None) -> Callable[[dict[str, Any]], MCPError | None]:
    left = [times]

    def refused(_: dict[str, Any]) -> MCPError | None:
        left[0] -= 1
        return MCPError(code, message, data) if left[0] >= 0 else None

    return refused
