"""The body of a request, as far as it may be large: as the SDK's middleware bounds it.

That one has a frame, and what it keeps, for as long as the response takes; of each stream that is listened to, 2 KiB.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Receive

__all__ = ["TooLarge", "read"]


class TooLarge(Exception):
    """It is."""


async def read(headers: Headers, receive: Receive, most: int) -> bytes | None:
    """The body; None: its client has gone before its end.

    Raises:
        TooLarge: it has more than `most` bytes, or says so.
    """
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > most:
        raise TooLarge
    body = b""
    while (message := await receive())["type"] == "http.request":
        piece = message.get("body", b"")
        if len(body) + len(piece) > most:
            raise TooLarge
        body = body + piece if body else piece
        if not message.get("more_body", False):
            return body
    return None
