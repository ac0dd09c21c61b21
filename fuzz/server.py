"""The server under the fuzzer: a real process on loopback, which must not die, swell, or log what nobody expects.

It is started as a user starts one. Any error and any traceback in its log counts as found.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

__all__ = ["APP", "MOST_MEMORY", "NotInOrder", "Server", "loud", "serving"]

APP: Final = "fuzz.app:mcp"
ROOT: Final = Path(__file__).resolve().parents[1]
PERDURE: Final = Path(sys.executable).with_name("perdure")
MOST_MEMORY: Final = 300 << 20
"""Bytes that the process may come to occupy beyond what it had when it was up."""
UP_WITHIN: Final = 60.0
ENDED_WITHIN: Final = 30.0
_SHOWN: Final = 4000
_PROBE: Final = 0.02
_SAID: Final = re.compile(r"on http://[^:]+:(\d+)/mcp")
_LOUD: Final = re.compile(
    r"^[\d: .Z-]*(ERROR|CRITICAL)\b|^Traceback|^\s*\+? *Exception Group|never retrieved|never awaited|unclosed|"
    r"Fatal Python|^\S*(Runtime|Resource|Deprecation)Warning",
    re.MULTILINE,
)
_RECORD: Final = re.compile(r"^(?=\d{4}-\d\d-\d\d \d\d:)", re.MULTILINE)
_MOMENT: Final = 0.3
"""Seconds after which a process that has hung up is dead, if it is dying."""
_REST: Final = 0.05
"""Seconds after which the rest of a record is there."""


class NotInOrder(Exception):
    """The server does not begin or end as it should."""


class Server:
    """A server that is up. `port` is where, `log` all that it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process = process
        self.port = port
        self.log = log
        self._read = 0
        self._at_first = self._memory()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def gone(self) -> bool:
        """Whether it has died of what was sent last, for which it may need a moment."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_MOMENT)
        return not self.alive

    def complaints(self) -> str:
        """What it has said loudly since the last look; empty if nothing."""
        if self.log.stat().st_size == self._read:
            return ""
        said = self._said()
        if not loud(said):
            self._read += len(said)
            return ""
        sleep(_REST)
        said = self._said()
        self._read += len(said)
        return loud(said)

    def _said(self) -> bytes:
        with self.log.open("rb") as file:
            file.seek(self._read)
            return file.read()

    def grown(self) -> int:
        """Bytes by which it occupies more than it did at first."""
        return self._memory() - self._at_first

    def _memory(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status")
        found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
        return 0 if found is None else int(found[1]) << 10


def loud(said: bytes) -> str:
    """What in a piece of a log nobody expects; empty if there is nothing."""
    for record in _RECORD.split(said.decode(errors="replace")):
        if _LOUD.search(record):
            return record[-_SHOWN:]
    return ""


@contextmanager
def serving(store: Path, log: Path, *options: str, app: str = APP) -> Generator[Server]:
    """`perdure serve` of `app` on the file `store`.

    Raises:
        NotInOrder: it does not come up, or does not end when told to; its last words are in the message.
    """
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [PERDURE, "serve", app, "--port", "0", "--store", f"sqlite:///{store}", *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        yield Server(process, log, _port(process, log))
    finally:
        _end(process, log)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    """Where it serves, once it does."""
    deadline = monotonic() + UP_WITHIN
    while process.poll() is None and monotonic() < deadline:
        said = _SAID.search(log.read_text(errors="replace"))
        if said is not None and _accepts(int(said[1])):
            return int(said[1])
        sleep(_PROBE)
    raise NotInOrder(f"the server does not come up:\n{log.read_text(errors='replace')[-_SHOWN:]}")


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    try:
        process.wait(ENDED_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise NotInOrder(f"the server did not end:\n{log.read_text(errors='replace')[-_SHOWN:]}") from None
