"""The load: requests as bytes made beforehand, sent over keep-alive connections by the smallest client that can do it.

A general HTTP client costs more per request than the server that it is to measure. This one knows what these servers
send (one response with Content-Length for each request) and refuses all else, so that an error never counts as a fast
answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION

__all__ = ["Answer", "Client", "Sample", "call", "cancel", "connected", "get", "listen", "listen_for_tools", "update"]

_META: Final[Mapping[str, Any]] = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: {"name": "bench", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}


def _request(method: str, name: str | None, params: dict[str, Any]) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    body = json.dumps(message, separators=(",", ":")).encode()
    named = "" if name is None else f"Mcp-Name: {name}\r\n"
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {LATEST_MODERN_VERSION}\r\n"
        f"Mcp-Method: {method}\r\n{named}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def call(tool: str, **arguments: Any) -> bytes:
    """A `tools/call` by a client that knows tasks and forms."""
    return _request("tools/call", tool, {"name": tool, "arguments": arguments})


def get(task_id: str) -> bytes:
    return _request("tasks/get", task_id, {"taskId": task_id})


def update(task_id: str, responses: dict[str, Any]) -> bytes:
    return _request("tasks/update", task_id, {"taskId": task_id, "inputResponses": responses})


def cancel(task_id: str) -> bytes:
    return _request("tasks/cancel", task_id, {"taskId": task_id})


def listen(*task_ids: str) -> bytes:
    return _request("subscriptions/listen", None, {"notifications": {"taskIds": task_ids}})


def listen_for_tools() -> bytes:
    """A listen for what every SDK server has: changes of its list of tools."""
    return _request("subscriptions/listen", None, {"notifications": {"toolsListChanged": True}})


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request. `sent` and `read` by `time.monotonic`."""

    sent: float
    read: float
    result: dict[str, Any]


@dataclass(slots=True)
class Sample:
    """What one turn of load came to; `latencies` in seconds."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds


class _Connection(asyncio.Protocol):
    """One request at a time: `send` it, await `answer`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if found and self._answer is not None and not self._answer.done():
            try:
                length = _length(head)
            except ValueError as error:
                self._answer.set_exception(error)
                return
            if len(body) >= length:
                self._received = b""
                self._answer.set_result(body)

    async def exchange(self, request: bytes) -> bytes:
        """The body of the answer to `request`."""
        assert self._transport is not None
        if self._lost:
            raise ConnectionResetError("the server has closed the connection, which was idle")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _length(head: bytes) -> int:
    """The length of the body that follows `head`."""
    lower = head.lower()
    if not head.startswith(b"HTTP/1.1 200 ") or b"content-length:" not in lower:
        raise ValueError(f"no plain 200: {head.decode('latin-1')}")
    return int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])


class Client:
    """Connections to one server, each of which has one request on its way."""

    def __init__(self, connections: list[_Connection]) -> None:
        self._connections = connections

    async def all(self, requests: Iterator[bytes], marker: bytes) -> list[dict[str, Any]]:
        """The results of `requests`, in no particular order. All must contain `marker`."""
        results: list[dict[str, Any]] = []

        async def work(connection: _Connection) -> None:
            for request in requests:
                answer = _checked(await connection.exchange(request), marker)
                results.append(json.loads(answer)["result"])

        await self._together([work(connection) for connection in self._connections])
        return results

    async def load(self, requests: Iterator[bytes], marker: bytes, seconds: float) -> Sample:
        """Send `requests` for so long, always one on each connection."""
        sample, clock = Sample(), time.perf_counter
        started = clock()

        async def work(connection: _Connection) -> None:
            sent = clock()
            for request in requests:
                _checked(await connection.exchange(request), marker)
                answered = clock()
                sample.latencies.append(answered - sent)
                if answered - started > seconds:
                    return
                sent = answered

        await self._together([work(connection) for connection in self._connections])
        sample.seconds = clock() - started
        return sample

    async def paced(self, requests: Sequence[bytes], marker: bytes, rate: float) -> list[Answer]:
        """Send `requests` by a timetable, so many a second; what came of each, in their order."""
        answers, clock, timetable = dict[int, Answer](), time.monotonic, iter(enumerate(requests))
        started = clock()

        async def work(connection: _Connection) -> None:
            for number, request in timetable:
                await asyncio.sleep(started + number / rate - clock())
                sent = clock()
                answer = _checked(await connection.exchange(request), marker)
                answers[number] = Answer(sent, clock(), json.loads(answer)["result"])

        await self._together([work(connection) for connection in self._connections])
        return [answers[number] for number in range(len(requests))]

    async def _together(self, work: list[Any]) -> None:
        async with asyncio.TaskGroup() as group:
            for coroutine in work:
                group.create_task(coroutine)


def _checked(body: bytes, marker: bytes) -> bytes:
    if marker not in body:
        raise ValueError(f"the answer lacks {marker!r}: {body.decode()}")
    return body


@contextlib.asynccontextmanager
async def connected(port: int, connections: int) -> AsyncGenerator[Client]:
    """A client with so many connections to the server on `port`."""
    loop, opened = asyncio.get_running_loop(), list[_Connection]()
    try:
        for _ in range(connections):
            _, connection = await loop.create_connection(_Connection, "127.0.0.1", port)
            opened.append(connection)
        yield Client(opened)
    finally:
        for connection in opened:
            connection.close()
