"""A backend that does whatever a test wants: raw HTTP on loopback, of which every byte is the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.support import PATIENCE

__all__ = ["CAPABILITIES", "HANDLE", "Asked", "Liar", "event", "liar", "response", "result", "stream"]

JSON_TYPE: Final = "application/json"
SSE_TYPE: Final = "text/event-stream"
CAPABILITIES: Any = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
"""What a backend with task tools says that it can do."""
HANDLE: Any = {
    "resultType": "task",
    "taskId": "theirs-0001",
    "status": "working",
    "createdAt": "2026-11-30T00:00:00.000Z",
    "lastUpdatedAt": "2026-11-30T00:00:00.000Z",
    "ttlMs": None,
}
"""What a call of one may become."""


@dataclass(frozen=True)
class Asked:
    """One request that arrived. The names of headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Liar:
    """`answer` is called for each request; when it returns, the connection is kept for the next one.

    `asked`: the requests so far. `connections`: how many there have been. `hung_up`: set when a client went away while
    an answer was under way.
    """

    answer: Answer
    url: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])
    connections: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                answering = asyncio.ensure_future(self.answer(asked, writer))
                leaving = asyncio.ensure_future(reader.read(1))  # nobody pipelines, so a byte is an end
                try:
                    await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                    if not answering.done():
                        self.hung_up.set()
                        return
                    await answering
                finally:
                    for task in (answering, leaving):
                        task.cancel()
                    await asyncio.gather(answering, leaving, return_exceptions=True)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return Asked(headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@asynccontextmanager
async def liar(answer: Answer) -> AsyncGenerator[Liar]:
    """One that is up; all of its connections end with it."""
    made, serving = Liar(answer), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(asyncio.CancelledError):
            await made.serve(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield made
    finally:
        server.close()
        for task in serving:
            task.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*serving, return_exceptions=True)


def result(asked: Asked, **others: Any) -> dict[str, Any]:
    """A good response to it; `others` are members of its result."""
    return {"jsonrpc": "2.0", "id": asked.message["id"], "result": {"resultType": "complete", **others}}


def response(body: Any, status: str = "200 OK", kind: str = JSON_TYPE, **headers: str) -> bytes:
    """A whole response of HTTP. `body`: bytes, or to be JSON. `headers`: with `_` for `-`; "" leaves one out."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_of_them = {"content-type": kind, "content-length": str(len(data))}
    all_of_them |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in all_of_them.items() if value), "", ""]
    return "\r\n".join(lines).encode() + data


def stream(*pieces: bytes, end: bool = True, kind: str = SSE_TYPE) -> bytes:
    """A response that is a stream: each piece is a chunk of HTTP."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    return head + b"".join(map(chunk, pieces)) + (b"0\r\n\r\n" if end else b"")


def chunk(piece: bytes) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n"


def event(message: Any) -> bytes:
    """A message as an event."""
    return f"data: {json.dumps(message)}\n\n".encode()
