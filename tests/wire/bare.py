"""Requests to an application as a server would hand them on: no socket, and no client.

What takes time then is the application alone. A client takes as long again, and adds to the noise of whatever is
measured.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.types import Message

from tests.wire.envelopes import JSON, headers

__all__ = ["Post", "posting"]


@dataclass(frozen=True)
class Post:
    """A POST that may be made again and again. `fields` are its headers."""

    app: Starlette
    path: str
    content: bytes
    fields: Mapping[str, str]

    async def make(self) -> bytes:
        """Make it: the body of the whole answer."""
        exchange = _Exchange(self.content)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in self.fields.items()],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        await self.app(scope, exchange.receive, exchange.send)
        assert exchange.over.is_set()
        return bytes(exchange.answer)


def posting(app: Starlette, body: JSON, bearer: str, *, path: str = "/mcp") -> Post:
    """The POST of a request, with the headers that belong to it."""
    content = json.dumps(body).encode()
    fields = {"host": "127.0.0.1:80", "content-length": str(len(content)), "authorization": f"Bearer {bearer}"}
    return Post(app, path, content, fields | headers(body))


@dataclass
class _Exchange:
    """One request and the body of its answer."""

    content: bytes
    answer: bytearray = field(default_factory=bytearray)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    read: bool = False

    async def receive(self) -> Message:
        if self.read:
            await self.over.wait()
            return {"type": "http.disconnect"}
        self.read = True
        return {"type": "http.request", "body": self.content, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.answer += message["body"]
            if not message.get("more_body", False):
                self.over.set()
