"""A stream of server-sent events, out of bytes as they come. Pure: it reads no clock and no socket.

Everything is bounded. One event takes `event` bytes at most, with the line that has not ended yet. What is no data
(comments, mostly: signs of life) has an allowance of its own, which refills slowly: a comment every few seconds for a
day is well, a flood of them is an attack or a fault, and no client ever sees either. What is no message counts as a
comment. And since a stream that shows signs of life, and nothing else, looks alive to every timer below it, there is a
longest time without data.

A line ends with CR, LF or both, and may be split anywhere, in the middle of a character too. An event that has no blank
line after it when the stream ends is dropped, as the standard wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Parser", "SSEBounds", "SSEFault"]

_MARK: Final = b"\xef\xbb\xbf"


class SSEFault(ValueError):
    """The stream goes past a bound, or is no UTF-8. `late`: that of time."""

    def __init__(self, why: str, *, late: bool = False) -> None:
        super().__init__(why)
        self.late = late


@dataclass(frozen=True, slots=True)
class SSEBounds:
    """What a stream may cost.

    Args:
        event: bytes of one event.
        quiet_bytes: bytes that come one after the other without being part of a message that has data.
        quiet_rate: bytes a second by which that allowance refills.
        quiet_seconds: seconds without a message that has data.
    """

    event: int = 4 * 1024 * 1024
    quiet_bytes: int = 64 * 1024
    quiet_rate: float = 256.0
    quiet_seconds: float = 3_600.0


class Parser:
    """One stream. `now`: seconds of whatever clock `feed` is given."""

    def __init__(self, bounds: SSEBounds, now: float) -> None:
        self._bounds = bounds
        self._line = bytearray()
        self._after_cr = False
        self._first = True
        self._kind = ""
        self._data: list[str] = []
        self._size = 0
        self._spent = 0.0
        self._at = self._heard = now

    @property
    def silent_after(self) -> float:
        """The moment by which there has to be a message that has data."""
        return self._heard + self._bounds.quiet_seconds

    def feed(self, data: bytes, now: float) -> Iterator[str]:
        """What the messages that end in `data` say. The iterator has to be gone through to its end.

        Raises:
            SSEFault: the stream is to be closed.
        """
        self._spent = max(0.0, self._spent - (now - self._at) * self._bounds.quiet_rate)
        self._at = now
        for line in self._lines(data):
            if line:
                self._take(line)
            elif any(self._data) and self._kind in ("", "message"):
                yield self._message(now)
            else:
                self._drop()
        self._check(now)

    def _lines(self, data: bytes) -> Iterator[bytes]:
        if not data:
            return
        if self._after_cr:
            data = data[1:] if data.startswith(b"\n") else data
        # A CR that ends the piece ends a line, now: the event must not wait for a byte that may never come. If it was
        # the first half of a CRLF, the LF is dropped when it comes.
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._line += data[start:end]
            yield self._ended()
            start = end + 1
        self._line += data[start:]

    def _ended(self) -> bytes:
        line = bytes(self._line)
        self._line.clear()
        if self._first:
            self._first = False
            line = line.removeprefix(_MARK)
        return line

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name not in (b"data", b"event"):  # ids and retries are of no use here: there is no resuming (contract 7)
            self._spent += len(line) + 1
            self._bound_quiet()
            return
        self._size += len(line) + 1
        if self._size > self._bounds.event:
            raise SSEFault("an event is too large")
        try:
            text = value.removeprefix(b" ").decode("utf-8")
        except UnicodeDecodeError:
            raise SSEFault("an event is no UTF-8") from None
        if name == b"data":
            self._data.append(text)
        else:
            self._kind = text

    def _message(self, now: float) -> str:
        said = "\n".join(self._data)
        self._forget()
        self._heard, self._spent = now, 0.0
        return said

    def _drop(self) -> None:
        """A blank line after nothing that is a message with data: nobody wants it, but it was sent."""
        self._spent += self._size + 1
        self._forget()
        self._bound_quiet()

    def _forget(self) -> None:
        self._kind, self._size = "", 0
        self._data = []

    def _check(self, now: float) -> None:
        if self._size + len(self._line) > self._bounds.event:
            raise SSEFault("an event is too large")
        if now > self.silent_after:
            raise SSEFault("there was nothing but signs of life for too long", late=True)

    def _bound_quiet(self) -> None:
        if self._spent > self._bounds.quiet_bytes:
            raise SSEFault("there are more signs of life than there may be")
