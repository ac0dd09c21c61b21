"""An upstream and the backend that it speaks to, for tests of how it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from perdure.domain.model import JSONObject
from perdure.gateway.gate import Gate
from perdure.gateway.sse import SSEBounds
from perdure.gateway.upstream import Bounds, Reply, Upstream
from tests.support import PATIENCE

from .raw_backend import Answer, Asked, Liar, liar, response, result

BOUNDS = Bounds(connect=PATIENCE, read=PATIENCE, body=1_000, events=SSEBounds(event=1_000, quiet_bytes=500))
NOTE: JSONObject = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1, "own": None}}


def call(method: str = "tools/call", id: Any = 7, **params: Any) -> JSONObject:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def soon() -> float:
    return anyio.current_time() + PATIENCE


def says(data: bytes, *, end: bool = False) -> Answer:
    """Whatever is asked. `end`: and hangs up."""

    async def answer(_asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if end:
            writer.close()

    return answer


async def answers(asked: Asked, writer: asyncio.StreamWriter) -> None:
    writer.write(response(result(asked)))


async def hangs(_asked: Asked, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def backend(answer: Answer, bounds: Bounds = BOUNDS) -> AsyncGenerator[tuple[Liar, Upstream]]:
    async with liar(answer) as lying, Upstream("b", lying.url, bounds, chance=lambda: 1.0) as upstream:
        yield lying, upstream


async def ask(upstream: Upstream, message: JSONObject | None = None, **headers: str) -> Reply:
    return await upstream.request(message or call(), headers, deadline=soon())


@asynccontextmanager
async def place(gate: Gate, lane: Hashable, deadline: float) -> AsyncGenerator[None]:
    """One place behind the gate, held meanwhile."""
    ticket = await gate.enter(lane, deadline)
    try:
        yield
    finally:
        gate.leave(ticket)
