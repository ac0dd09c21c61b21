"""A way to a server on which what goes through can be held up, lost or cut off."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Listens on loopback while it is entered, and passes on to `host` and `port`.

    `holding`: answers of the server are kept back until `let_go`. `cut_at`: who sends this is cut off.
    """

    def __init__(self, host: str, port: int, *, holding: bool = False, cut_at: bytes | None = None) -> None:
        self.port = 0
        self._there = host, port
        self._cut_at = cut_at
        self._flowing = self._open()
        self._answering = asyncio.Event() if holding else self._open()
        self._pumps: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def die(self) -> None:
        """Let nothing through any more on the connections that there are, which stay open. New ones are served."""
        self._flowing.clear()
        self._flowing = self._open()

    def cut(self) -> None:
        """Cut all connections off that there are. New ones are served."""
        for pump in self._pumps:
            pump.cancel()
        self._pumps.clear()

    def hold(self) -> None:
        """Keep back what the server says from now on."""
        self._answering.clear()

    def let_go(self) -> None:
        """Pass on what was kept back, and all that follows."""
        self._answering.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, there = await asyncio.open_connection(*self._there)
        self._pumps |= {
            asyncio.create_task(self._pump(reader, there, self._flowing, self._flowing)),
            asyncio.create_task(self._pump(answers, writer, self._flowing, self._answering)),
        }

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *gates: asyncio.Event) -> None:
        try:
            while data := await reader.read(65536):
                for gate in gates:
                    await gate.wait()
                if self._cut_at is not None and self._cut_at in data:
                    break
                writer.write(data)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    @staticmethod
    def _open() -> asyncio.Event:
        event = asyncio.Event()
        event.set()
        return event
