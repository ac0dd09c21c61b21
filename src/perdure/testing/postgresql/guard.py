"""Ends a folder with its processes once its owner is gone: `python guard.py FOLDER SIGNAL`.

The owner holds the other end of standard input. When it is done with the folder it writes a byte, since a fork of the
owner may hold that end too; the end of the pipe is the end of the owner, however it came about. Whoever works in the
folder belongs to it: every process of a PostgreSQL server does, backends included, and they inherit it, so there is no
list of ids that could be out of date.

Imports the standard library only and is run as a file, without the rest of perdure, so that it is up in no time.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["end", "processes"]

_IN_ORDER_WITHIN = 10.0
"""Seconds; PostgreSQL kills backends of its own that have not ended after five."""


def processes(folder: str) -> list[int]:
    """The ids of all processes that work in the folder or below; those that are dead already have no such place."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone, or somebody else's
            place = str((process / "cwd").readlink()).removesuffix(" (deleted)")
            if place == folder or place.startswith(folder + "/"):
                found.append(int(process.name))
    return found


def send(what: signal.Signals, folder: str) -> bool:
    """Send a signal to all of them; whether there was anybody."""
    found = processes(folder)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, what)
    return bool(found)


def end(folder: str, how: signal.Signals) -> None:
    """End the processes by that signal, or else by SIGKILL, and remove the folder.

    The gentler signal comes first because a PostgreSQL server that is killed leaves shared memory behind.
    """
    send(how, folder)
    send(signal.SIGCONT, folder)  # whoever is paused hears nothing else
    deadline = time.monotonic() + _IN_ORDER_WITHIN
    while processes(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    while send(signal.SIGKILL, folder):
        time.sleep(0.01)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.stdin.buffer.read(1)
    end(sys.argv[1], signal.Signals[sys.argv[2]])
