"""The response to one client: a JSON body, or a stream that is written event by event as events come.

An event is written before the next one is read from the backend, so a client that reads slowly slows its backend down,
and nothing piles up here. One that has stopped reading is cut off after `frame_within` seconds. A stream that has
nothing to say for a while gets a comment, so that no proxy between takes it for dead; comments of a backend's are not
passed on, since one that writes nothing but comments would look alive.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

import anyio
from anyio import CancelScope
from starlette.types import Receive, Send

from perdure.domain.model import JSONObject

from .answers import Answer
from .rawjson import encode

__all__ = ["FRAME_WITHIN", "PING_EVERY", "Outlet", "Stalled"]

logger = logging.getLogger(__name__)

FRAME_WITHIN: Final = 30.0
"""Seconds that a client has to take an event."""
PING_EVERY: Final = 15.0
"""Seconds of silence after which there is a comment."""

_COMMENT: Final = b": ping\r\n\r\n"
_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class Stalled(Exception):
    """The client has not taken an event in time: there is nobody to say anything to."""


class Outlet:
    """One response."""

    def __init__(self, send: Send, frame_within: float = FRAME_WITHIN, ping_every: float = PING_EVERY) -> None:
        self._send = send
        self._frame_within = frame_within
        self._ping_every = ping_every
        self._kept_alive = False
        self._turn = asyncio.Lock()  # anyio's takes 700 bytes more for as long as a stream is open
        self._watched = True
        self._watching: CancelScope | None = None
        self._written = 0
        self.begun = False
        self.over = False
        self.said: JSONObject | None = None
        """The response, once there is one."""

    def keep_alive(self) -> None:
        """Be a stream as soon as there has been nothing to say for a while, as the SDK's server is, and stay one."""
        self._kept_alive = True

    async def watch(self, receive: Receive, scope: CancelScope) -> None:
        """End `scope` once the client has hung up, or does not read; meanwhile, write a comment now and then.

        Until `unwatched`, or the response is over.
        """
        with CancelScope() as self._watching:
            try:
                while self._watched and not self.over and await self._is_there(receive):
                    pass
            except Exception as error:  # the boundary to whoever serves us, whose other clients it is no matter for
                if not isinstance(error, Stalled):
                    logger.exception("a client could not be watched")
            if self._watched and not self.over:
                scope.cancel()

    async def _is_there(self, receive: Receive) -> bool:
        """Whether the client is, after a while in which nothing may have been said to it."""
        seen = self._written
        with anyio.move_on_after(self._ping_every):
            return (await receive())["type"] != "http.disconnect"
        if self._kept_alive and seen == self._written:
            await self._write(_COMMENT)
        return True

    def unwatched(self) -> None:
        """Nobody needs to know any longer whether the client is there."""
        self._watched = False
        if self._watching is not None:
            self._watching.cancel()

    async def event(self, message: JSONObject) -> None:
        """One event of the stream that the response is, from the first of them on.

        Raises:
            Stalled: the client did not take it.
        """
        self.keep_alive()
        await self._write(_event(message))

    async def answer(self, answer: Answer) -> None:
        """The last there is to say: the final event of a stream, or the whole response.

        Raises:
            Stalled: the client did not take it.
        """
        self.said = answer.message
        await self._in_time(self._answer(answer))

    async def _answer(self, answer: Answer) -> None:
        async with self._turn:
            # Not before: who is cancelled while waiting for its turn has said nothing yet, and may be answered for.
            self.over = True
            if self.begun:
                await self._body(_event(answer.message), more=False)
                return
            body = encode(answer.message)
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
            await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await self._body(body, more=False)

    async def acknowledge(self) -> None:
        """The answer to a notification: none."""
        await self.refuse(202)

    async def refuse(self, status: int) -> None:
        """A status, and no word."""
        self.over = True
        headers = [(b"content-length", b"0")]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": b""})

    async def _write(self, content: bytes) -> None:
        await self._in_time(self._piece(content))

    async def _piece(self, content: bytes) -> None:
        async with self._turn:  # one at a time
            if self.over:
                return
            if not self.begun:
                self.begun = True
                await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
            self._written += 1
            await self._body(content)

    async def _body(self, content: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": content, "more_body": more})

    async def _in_time(self, writing: Coroutine[None, None, None]) -> None:
        waiting = asyncio.timeout(self._frame_within)
        try:
            async with waiting:
                await writing
        except TimeoutError:
            if waiting.expired():
                raise Stalled from None
            raise


def _event(message: JSONObject) -> bytes:
    return b"event: message\r\ndata: " + encode(message) + b"\r\n\r\n"
