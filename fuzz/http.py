"""Bytes to a server and whatever comes back, with a bound on how long that may take. Knows nothing of what they mean.

A client that is done sending closes its half of the connection. By then, at the latest, the server has no reason to
keep the other half.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

__all__ = ["ANSWERED_WITHIN", "Hang", "Reply", "exchange", "post", "replies"]

JSON = Any
ANSWERED_WITHIN: Final = 10.0
"""Seconds within which a request is answered, or the connection closed."""
_QUIET: Final = 0.1
"""Seconds of silence after which no more is expected of a connection that stays open."""
_CHUNK: Final = 1 << 16


class Hang(Exception):
    """Neither an answer nor the end of the connection came in time."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer. `body`: what it says as JSON; None if it is no JSON, and the last of them if it is a stream."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def messages(self) -> list[JSON]:
        """All that it says as JSON."""
        kind = self.headers.get("content-type", "") if self.content else ""
        if kind.startswith("application/json"):
            return [json.loads(self.content)]
        if kind.startswith("text/event-stream"):
            lines = self.content.decode().replace("\r\n", "\n").split("\n")
            return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
        return []

    @property
    def body(self) -> JSON:
        return next(reversed(self.messages), None)


def exchange(
    port: int, content: bytes, *, whole: bool = True, within: float = ANSWERED_WITHIN
) -> tuple[bytes, list[Reply]]:
    """Send exactly this: what came back, and the answers in it.

    `whole`: it is a request, which has to be answered. `within`: seconds for that.

    Raises:
        Hang: neither that nor the end of the connection came in time.
    """
    with closing(socket.create_connection(("127.0.0.1", port), timeout=within)) as connection:
        try:
            connection.sendall(content)
        except OSError:  # it has heard enough, and may have said so
            whole = False
        came = _read(connection, within, whole=whole)
    return came, list(replies(came))


def _read(connection: socket.socket, within: float, *, whole: bool) -> bytes:
    came, open_, deadline = b"", True, monotonic() + within
    while True:
        connection.settimeout(within if (whole and not came) or not open_ else _QUIET)
        try:
            chunk = connection.recv(_CHUNK)
        except TimeoutError:
            if not open_ or (whole and not came):
                raise Hang("no answer" if open_ else "the connection stays open") from None
            open_ = False
            _close_half(connection)
            continue
        except OSError:  # it was cut off, which is an answer too
            return came
        if not chunk:
            return came
        came += chunk
        if monotonic() > deadline:
            raise Hang("the answer has no end")


def _close_half(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:  # the server was faster
        connection.close()


def replies(came: bytes) -> Iterator[Reply]:
    """The answers in what came over one connection; what is cut short ends with it."""
    while came:
        head, end, rest = came.partition(b"\r\n\r\n")
        if not end or not head.startswith(b"HTTP/1."):
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        status = int(first.split()[1])
        content, came = _content(status, fields, rest)
        if status >= HTTPStatus.OK:
            yield Reply(status, fields, content)


def _content(status: int, fields: Mapping[str, str], rest: bytes) -> tuple[bytes, bytes]:
    """What belongs to an answer, and what comes after."""
    if status < HTTPStatus.OK or status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return b"", rest
    if fields.get("transfer-encoding") == "chunked":
        return _unchunked(rest)
    length = int(fields.get("content-length", len(rest)))
    return rest[:length], rest[length:]


def _unchunked(rest: bytes) -> tuple[bytes, bytes]:
    content = b""
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16) if size else 0
        content, rest = content + rest[:length], rest[length:].removeprefix(b"\r\n")
        if not length:
            return content, rest


def post(path: str, content: bytes, headers: Mapping[str, str] | list[tuple[str, str]]) -> bytes:
    """A request in order, after whose answer the connection is closed. Values may be any text of Latin-1."""
    fields = list(headers.items()) if isinstance(headers, Mapping) else headers
    head = [f"POST {path} HTTP/1.1", "host: 127.0.0.1:8000", "connection: close"]
    head += [f"{name}: {value}" for name, value in fields]
    if not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in fields):
        head.append(f"content-length: {len(content)}")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + content
