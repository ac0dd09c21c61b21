"""A program on a terminal of its own, and what a person would see on it.

The program is the leader of a session on a pseudo-terminal, so that Ctrl-C reaches it as it does at a desk: as a
character that the terminal turns into a signal. What it writes goes through a reader of the few commands that ours
uses; any other one is an error, since that is what a hostile server would be after.
"""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

from perdure.ops.calling import book
from perdure.ops.calling.desk import Desk, Settings
from perdure.ops.calling.endpoint import Access
from perdure.ops.calling.screen import Keyboard, Screen
from tests import copies
from tests.copies import Copy
from tests.support import PATIENCE, eventually
from tests.wire.support import ROOT

PERDURE = (sys.executable, "-c", "from perdure.ops.program import program; program()")
CTRL_C, CTRL_D = "\x03", "\x04"
_COMMAND = re.compile(r"\x1b\[(\d*(?:;\d+)*)([A-Za-z])")


class Display:
    """What is written, as lines. `colours`: the commands for colours that came by."""

    def __init__(self) -> None:
        self.lines = [""]
        self.colours: list[str] = []
        self._row = 0
        self._column = 0

    def write(self, text: str) -> None:
        place = 0
        while place < len(text):
            found = _COMMAND.match(text, place)
            if found:
                self._command(found[1], found[2])
                place = found.end()
            else:
                self._put(text[place])
                place += 1

    def _command(self, number: str, letter: str) -> None:
        if letter == "m":
            self.colours.append(number)
        elif letter == "A":
            self._row = max(0, self._row - int(number or 1))
        elif (number, letter) == ("2", "K"):
            self.lines[self._row] = ""
        else:
            raise AssertionError(f"nobody here writes \\e[{number}{letter}")

    def _put(self, each: str) -> None:
        if each == "\r":
            self._column = 0
        elif each == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append("")
        elif each == "\b":
            self._column -= 1
        else:
            assert each.isprintable() or each == "\t", f"{each!r} reached the terminal"
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + each + line[self._column + 1 :]
            self._column += 1

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Terminal:
    """What a person at a terminal sees and types. `tty` is the program's end of it."""

    def __init__(self, columns: int = 120) -> None:
        master, self.tty = pty.openpty()
        fcntl.ioctl(self.tty, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.screen = Display()
        self._master = master
        self._rest = b""
        self._failed: AssertionError | None = None
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            read = os.read(self._master, 65536)
        except OSError:
            read = b""
        if not read:
            asyncio.get_running_loop().remove_reader(self._master)
            return
        whole = self._rest + read
        # A character, and a command, may come in two pieces.
        cut = (
            max(whole.rfind(b"\x1b"), 0) if not _COMMAND.search(whole[whole.rfind(b"\x1b") :].decode("latin-1")) else 0
        )
        whole, self._rest = (whole[:cut], whole[cut:]) if cut else (whole, b"")
        try:
            self.screen.write(whole.decode())
        except UnicodeDecodeError:
            self._rest = whole + self._rest
        except AssertionError as error:
            self._failed = error

    @property
    def text(self) -> str:
        if self._failed is not None:
            raise self._failed
        return self.screen.text

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def until(self, text: str) -> None:
        """Wait until `text` is on the screen."""
        try:
            await eventually(lambda: text in self.text, text)
        except AssertionError:
            raise AssertionError(f"{text!r} is not on the screen:\n{self.text}") from None

    async def answers(self, prompt: str, *typed: str) -> None:
        """Once there is a prompt, type a line."""
        for each in typed:
            await self.until(prompt)
            self.type(f"{each}\n")

    async def drained(self) -> str:
        """The whole screen, once nobody writes on it any more."""
        self.let_go()
        await eventually(self._is_drained, "all was read")
        return self.text

    def _is_drained(self) -> bool:
        return self._master < 0 or not asyncio.get_running_loop().remove_reader(self._master)

    def let_go(self) -> None:
        """The program's end is nobody's here any more."""
        if self.tty >= 0:
            os.close(self.tty)
        self.tty = -1

    def hang_up(self) -> None:
        """Close the terminal, as its window is closed."""
        asyncio.get_running_loop().remove_reader(self._master)
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        self.let_go()
        if self._master >= 0:
            self.hang_up()


@asynccontextmanager
async def in_front(
    folder: Path, *, columns: int = 120, access: Access | None = None
) -> AsyncGenerator[tuple[Desk, Terminal]]:
    """What a command works with, at a terminal, and who sits there; the journal is in `folder`. Starts no program."""
    (folder / "perdure").mkdir(exist_ok=True)
    terminal = Terminal(columns)
    try:
        with (
            closing(book.opened(str(folder / "perdure" / "handles.db"))) as journal,
            os.fdopen(os.dup(terminal.tty), "w") as out,
        ):
            screen, keyboard = Screen(out, live=True, colour=False), Keyboard(terminal.tty)
            yield Desk(Settings(), journal, access or Access(), screen, keyboard), terminal
    finally:
        terminal.close()


class Program(Terminal):
    """A program at its terminal. Made by `at_a_terminal`."""

    process: Copy

    async def ends(self, code: int = 0) -> str:
        """The whole screen, once the program has ended with that status."""
        async with asyncio.timeout(PATIENCE):
            status = await self.process.wait()
        assert status == code, self.text
        return await self.drained()

    def kill(self, how: signal.Signals) -> None:
        os.kill(self.process.pid, how)


@asynccontextmanager
async def at_a_terminal(
    *command: str | Path, env: Mapping[str, str] | None = None, columns: int = 120, cwd: Path = ROOT
) -> AsyncGenerator[Program]:
    """The program; it is killed at the end, unless it has ended."""
    terminal = Program(columns)
    terminal.process = copies.start(
        command,
        input=terminal.tty,
        output=terminal.tty,
        errors=terminal.tty,
        controlled=True,
        cwd=cwd,
        env={**surroundings(), "TERM": "xterm", **(env or {})},
    )
    terminal.let_go()
    try:
        yield terminal
    finally:
        terminal.process.kill()
        await terminal.process.wait()
        terminal.close()


def surroundings() -> dict[str, str]:
    """This process's environment without what decides how our programs look and where they go."""
    left_out = ("PERDURE_", "NO_COLOR", "XDG_STATE_HOME")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
