"""A response in one piece: uvicorn's protocol over a transport that keeps the first of two pieces for the second.

uvicorn writes the head of a response when it is told of it, and the body after that: two system calls, two packets, and
a client that is woken twice. What is written without a pause between belongs together; a piece that nothing follows
goes out when the loop comes round.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["OnePiece"]


class _Together:
    """A transport, but for what is about writing."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._kept = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._kept:
            data, self._kept = self._kept + data, b""
            self._transport.write(data)
        elif data:
            self._kept = data
            asyncio.get_running_loop().call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._kept:
            data, self._kept = self._kept, b""
            self._transport.write(data)


class OnePiece(AutoHTTPProtocol):
    """What `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", _Together(cast("asyncio.Transport", transport))))

    def send_400_response(self, msg: str) -> None:
        """Refuse a body that breaks off the protocol. Whoever answers the request meanwhile has nobody to answer."""
        cast("Any", super()).send_400_response(msg)
        # uvicorn leaves that to the loss of the connection, which comes after the application has had its turn.
        cycle: Any = vars(self)["cycle"]
        if cycle is not None:
            cycle.disconnected = True
