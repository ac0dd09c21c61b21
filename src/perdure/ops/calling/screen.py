"""The terminal: lines that stay, live lines below them that are painted over, and lines that a person types.

Everything but the result goes to standard error, so that the result can be piped while somebody watches and answers.
Without a terminal there are only lines that stay.

What is typed is read here and not by `input`, which would hold a thread that nothing can call back: a question that was
answered elsewhere has to go away, and Ctrl-C has to be heard at once. The terminal's own line editing is what there is.
"""

from __future__ import annotations

import os
import termios
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Final, Literal, TextIO

import anyio
import click

from perdure.ops import text

__all__ = ["Keyboard", "Screen", "Style"]

Style = Literal["good", "bad", "asks", "dim"]

_COLOURS: Final[dict[Style, dict[str, object]]] = {
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "asks": {"fg": "yellow"},
    "dim": {"dim": True},
}
_UP_AND_CLEAR: Final = "\x1b[1A\x1b[2K"
_UNKNOWN_SIZE: Final = (80, 24)
_CLEAR: Final = "\r\x1b[2K"


class Screen:
    """Writes to `out`. `live`: whether it is a terminal that can be painted on; `colour`: whether in colour."""

    def __init__(self, out: TextIO, *, live: bool, colour: bool) -> None:
        self.live = live
        self._out = out
        self._colour = colour
        self._shown = 0
        self._held: list[str] | None = None

    def styled(self, words: str, style: Style | None) -> str:
        """In colour, if there is any."""
        return click.style(words, **_COLOURS[style]) if self._colour and style else words  # pyright: ignore[reportArgumentType]

    def say(self, words: str, style: Style | None = None) -> None:
        """Lines that stay. During a form they wait for its end."""
        said = self.styled(words, style)
        if self._held is not None:
            self._held.append(said)
            return
        self.wipe()
        self._write(f"{said}\n")

    def show(self, lines: Iterable[str]) -> None:
        """The live lines, in place of those before; nothing without a terminal, and nothing during a form."""
        if not self.live or self._held is not None:
            return
        columns, rows = self._size()
        fitting = [text.within(each, columns - 1) for each in lines][: max(1, rows - 1)]
        self.wipe()
        self._write("\n".join(self.styled(each, "dim") for each in fitting))
        self._shown = len(fitting)

    def _size(self) -> tuple[int, int]:
        with suppress(OSError, ValueError):
            columns, rows = os.get_terminal_size(self._out.fileno())
            if columns and rows:
                return columns, rows
        return _UNKNOWN_SIZE

    def wipe(self) -> None:
        """Take the live lines away."""
        if self._shown:
            self._write(_CLEAR + _UP_AND_CLEAR * (self._shown - 1) + "\r")
        self._shown = 0

    def prompt(self, words: str) -> None:
        """The beginning of a line that somebody types the rest of."""
        self._write(words)

    @contextmanager
    def form(self) -> Generator[None]:
        """The terminal belongs to a form within the block: only `told` and `prompt` write on it."""
        self.wipe()
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for each in held:
                self._write(f"{each}\n")

    def told(self, words: str, style: Style | None = None) -> None:
        """A line of the form itself."""
        self._write(f"{self.styled(words, style)}\n")

    def _write(self, what: str) -> None:
        # A terminal that is gone (SIGHUP) is no reason to lose the task.
        with suppress(OSError):
            self._out.write(what)
            self._out.flush()


class Keyboard:
    """Lines that are typed at the terminal `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""

    def forget(self) -> None:
        """What was typed before a question was there is no answer to it."""
        self._rest = b""
        with suppress(termios.error):
            termios.tcflush(self._descriptor, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """The next line without its end; None at the end of the input (Ctrl-D)."""
        while b"\n" not in self._rest:
            await anyio.wait_readable(self._descriptor)
            read = self._read()
            if not read and not os.isatty(self._descriptor):
                # The terminal is gone, which nobody typed: it must not close the question. A signal comes, or none.
                await anyio.sleep_forever()
            if not read:
                return None
            self._rest += read
        found, _, self._rest = self._rest.partition(b"\n")
        return found.decode("utf-8", "replace")

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 4096)
        except OSError:
            return b""
