"""A proxy between a store and its server that cuts the connection at a moment that the test chooses."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

_SIZE = 1 << 16

Side = Literal["before", "after", "late"]


class Proxy:
    """One that passes on what comes, until a client says `at`.

    Then the connection is cut, once: before the server has heard of it; or after the server has answered, while the
    client has not; or the server hears of it late, when the test lets it, and of the cut only after that.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._parts = parts
        self._at: bytes | None = None
        self._side: Side = "before"
        self._handlers: set[asyncio.Task[None]] = set()
        self.url = ""
        self.cut = asyncio.Event()
        self.let = asyncio.Event()

    def cut_at(self, at: str, side: Side) -> None:
        self._at, self._side = at.encode(), side
        self.cut.clear()
        self.let.clear()

    @asynccontextmanager
    async def up(self) -> AsyncGenerator["Proxy"]:
        listener = await asyncio.start_server(self._accept, "127.0.0.1")
        port = listener.sockets[0].getsockname()[1]
        who = self._parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(self._parts._replace(netloc=f"{who}@127.0.0.1:{port}"))
        try:
            yield self
        finally:
            listener.close()
            for handler in self._handlers:
                handler.cancel()
            await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        try:
            there, back = await asyncio.open_connection(*self._server)
            with closing(back):
                await self._between(reader, writer, there, back)
        except ConnectionError:
            pass
        finally:  # also where it is cancelled before there is the other connection
            writer.close()
            self._handlers.discard(handler)

    async def _between(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        answers = asyncio.create_task(_pass_on(there, writer))
        try:
            while data := await reader.read(_SIZE):
                if self._at is not None and self._at in data:
                    self._at = None
                    answers.cancel()
                    await asyncio.wait([answers])
                    if self._side == "late":
                        self.cut.set()
                        writer.close()
                        await self.let.wait()
                    if self._side in ("after", "late"):
                        back.write(data)
                        await there.read(_SIZE)
                    self.cut.set()
                    break
                back.write(data)
                await back.drain()
        finally:
            answers.cancel()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_SIZE):
            writer.write(data)
            await writer.drain()
        writer.close()
    except ConnectionError:
        writer.close()
