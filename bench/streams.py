"""Listen streams as a client reads them: thousands in one process, each a connection that carries one request.

As little as can read them: it knows how these servers write a stream (HTTP/1.1, chunked, a frame an event), decodes
every frame, and refuses all else. A frame was read when its bytes came to this process, before they are decoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final

__all__ = ["Snapshot", "Stream", "Told", "nobody", "opened"]

Snapshot = dict[str, Any]
Told = Callable[[Snapshot, float], None]
"""Hears each snapshot, and when it was read, by `time.monotonic`."""

_AT_ONCE: Final = 64
"""Streams that are being opened, fewer than a server's backlog has room for."""
_WITHIN: Final = 60.0
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_CHANGED: Final = "notifications/tasks"


def nobody(snapshot: Snapshot, at: float) -> None:
    """Who need not know."""


class Stream(asyncio.Protocol):
    """One listen request, and what comes of it. It is `ready` once each of the tasks that it asked for was seen."""

    __slots__ = ("_bytes", "_request", "_task_ids", "_text", "_told", "_transport", "ended", "lost", "newest", "ready")

    def __init__(self, request: bytes, told: Told) -> None:
        self.newest: dict[str, Snapshot] = {}
        """What was said last of each task."""
        self.ended = False
        """Whether the server ended it, as it should, by the result of the request."""
        self.lost = False
        """Whether the connection is gone."""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._told = told
        self._transport: asyncio.Transport | None = None
        self._task_ids: frozenset[str] | None = None
        self._bytes = b""
        self._text: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.ready.done():
            self.ready.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        self._bytes += data
        if self._text is None and not self._begin():
            return
        assert self._text is not None
        *events, self._text = (self._text + b"".join(self._chunks())).split(b"\r\n\r\n")
        for event in events:
            if not event.startswith(b":"):
                self._heard(json.loads(event.partition(b"data: ")[2]), at)

    def close(self) -> None:
        """Hang up, as a client does that has heard enough."""
        self.ready.cancel()
        if self._transport is not None:
            self._transport.abort()

    def _begin(self) -> bool:
        """Read the head of the answer, if it is all there."""
        head, found, rest = self._bytes.partition(b"\r\n\r\n")
        if not found:
            return False
        lower = head.lower()
        if not head.startswith(b"HTTP/1.1 200 ") or b"\r\ntransfer-encoding: chunked" not in lower:
            raise ValueError(f"no stream: {self._bytes.decode('latin-1')}")
        self._bytes, self._text = rest, b""
        return True

    def _chunks(self) -> Iterable[bytes]:
        while True:
            size, found, rest = self._bytes.partition(b"\r\n")
            length = int(size, 16) if found else 0
            if not length or len(rest) < length + 2:
                return
            self._bytes = rest[length + 2 :]
            yield rest[:length]

    def _heard(self, message: dict[str, Any], at: float) -> None:
        method = message.get("method")
        if method == _CHANGED:
            snapshot = message["params"]
            self.newest[snapshot["taskId"]] = snapshot
            self._told(snapshot, at)
        elif method == _ACKNOWLEDGED:
            self._task_ids = frozenset(message["params"]["notifications"].get("taskIds", ()))
        elif message.get("result", {}).get("resultType") == "complete":
            self.ended = True
        else:
            raise ValueError(f"neither a snapshot nor the end: {message}")
        if self._task_ids is not None and self._task_ids <= self.newest.keys() and not self.ready.done():
            self.ready.set_result(None)


@contextlib.asynccontextmanager
async def opened(port: int, requests: Iterable[bytes], told: Told = nobody) -> AsyncGenerator[list[Stream]]:
    """A stream for each of the requests, all of them ready; for the length of the block."""
    loop, streams, waiting = asyncio.get_running_loop(), list[Stream](), iter(requests)

    async def work() -> None:
        for request in waiting:
            _, stream = await loop.create_connection(lambda request=request: Stream(request, told), "127.0.0.1", port)
            streams.append(stream)
            await stream.ready

    try:
        async with asyncio.timeout(_WITHIN), asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(work())
        yield streams
    finally:
        for stream in streams:
            stream.close()
