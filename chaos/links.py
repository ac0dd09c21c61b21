"""A process's way to the database's server, which can be made to misbehave: a proxy on a port of its own.

Bytes that a link holds back are delivered once it lets go, as a network does that was parted for a while: then the
COMMIT of a process that has lost its lease meanwhile arrives after all. And answers that are dropped leave a process in
doubt about what it asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["Link"]

_CHUNK: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing drops what is not sent, and the other side hears of a reset."""


class Link:
    """Takes connections on `port` of 127.0.0.1, and passes them on to the server's. To be opened in a running loop."""

    def __init__(self, port: int, server_port: int) -> None:
        self.port = port
        self._server_port = server_port
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._clear = asyncio.Event()
        self._clear.set()
        self._lag = 0.0
        self._deaf = False
        self._signal: bytes | None = None
        self.asked = 0
        """How many times the process has sent something, also what did not arrive."""
        self.met = 0
        """How many pieces of data met trouble here, and how many connections were cut."""

    async def listen(self) -> None:
        """Take connections, again."""
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    def refuse(self) -> None:
        """Take no more connections. Those that are open stay so."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def cut(self) -> None:
        """Break all connections, here and there."""
        self.met += len(self._connections)
        for connection in self._connections:
            connection.cancel()

    async def close(self) -> None:
        """Take none, and break those that there are."""
        self.refuse()
        self.cut()
        if self._connections:
            await asyncio.wait([*self._connections])

    # -- trouble -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def parted(self) -> AsyncGenerator[None]:
        """Nothing arrives, in either direction, before this is over; then all of it does."""
        self._clear.clear()
        try:
            yield
        finally:
            self._clear.set()

    @asynccontextmanager
    async def slow(self, seconds: float) -> AsyncGenerator[None]:
        """Everything takes so much longer."""
        self._lag = seconds
        try:
            yield
        finally:
            self._lag = 0.0

    @asynccontextmanager
    async def deaf(self, signal: bytes = b"") -> AsyncGenerator[None]:
        """From the next time that it says `signal` on, what the process asks for is done, and it does not hear so.

        At the end its connections break.
        """
        self._signal = signal
        try:
            yield
        finally:
            self.cut()
            self._deaf, self._signal = False, None

    # -- a connection --------------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._pass_on(reader, writer)
        finally:
            _reset(writer)
            self._connections.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._server_port)
        try:
            ways = [
                asyncio.create_task(self._pump(reader, back, asking=True)),
                asyncio.create_task(self._pump(there, writer, asking=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        finally:
            _reset(back)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, asking: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                self.asked += asking
                self._deaf = self._deaf or (asking and self._signal is not None and self._signal in data)
                self.met += bool(self._lag or self._deaf or not self._clear.is_set())
                if self._lag:
                    await asyncio.sleep(self._lag)
                await self._clear.wait()
                if asking or not self._deaf:
                    sink.write(data)
                    await sink.drain()
        await self._clear.wait()  # that it is over is news as well


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection that has nothing left to say; one that has is cut off."""
    if writer.transport.get_write_buffer_size():
        found = writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()
    else:
        writer.close()
