"""A response in one piece: uvicorn's protocol over a transport that keeps what it is given until the loop comes round.

uvicorn writes the head of a response when it is told of it, and the body after that: two system calls, two packets, and
a client that is woken twice. What is written without a pause between belongs together.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["OnePiece"]

_MOST: Final = 64 * 1024
"""Bytes that are kept: behind these the transport has to say whether there is room for more."""


class _Together:
    """A transport, but for what is about writing."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._kept: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._kept:
            asyncio.get_running_loop().call_soon(self._flush)
        self._kept.append(data)
        self._size += len(data)
        if self._size > _MOST:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._kept:
            data = self._kept[0] if len(self._kept) == 1 else b"".join(self._kept)
            self._kept.clear()
            self._size = 0
            self._transport.write(data)


class OnePiece(AutoHTTPProtocol):
    """What `uvicorn.Config(http=…)` takes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", _Together(cast("asyncio.Transport", transport))))
