"""The tools' own journal: a line for everything they do, written so that no crash can tear it.

A line is one `write` to a file that is opened with O_APPEND. What a process has written stays when the process is
killed (the kernel has it), so nothing is synced. The order of the lines is the order in which things were done, across
all processes, and not that of a clock, since clocks are lied to; but for the monotonic one, which says how long a timer
took. The file lies on another disk than the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Effect", "Event", "Follower", "Journal", "outbox", "read"]

JSON = Any

Event = Literal["start", "end", "answer", "step", "value", "fail", "handed", "withdrawn", "timer", "rang", "kill"]
"""A run began; it did its last thing; it was given an answer; it is inside a step; the step (or external work) came
back to it; it is about to raise an error; it hands external work over, or takes it back; it is about to set a timer,
and that has rung; it is about to kill its process."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A line. `run`: the token that the run drew. `name`: the key of an answer, the name of a step or of other work.

    `once`: the step is marked at most once. `value`: the answer, or what the step came to; None where the step said
    that it was interrupted; the handle of external work; the seconds of a timer. `at`: by the monotonic clock.
    """

    event: Event
    task: str
    run: str
    attempt: int
    pid: int
    name: str = ""
    once: bool = False
    value: JSON = None
    at: float = 0.0


class Journal:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, effect: Effect) -> None:
        """Append a line. Safe to call from any thread."""
        line = json.dumps(asdict(effect), separators=(",", ":")).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError("a line of the journal was torn")


class Follower:
    """The reading end, while it is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def more(self) -> Iterator[Effect]:
        """What was written since the last call."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read)
                written = file.read()
            written = written[: written.rfind(b"\n") + 1]  # a read may meet half of a write
            self._read += len(written)
            for line in written.splitlines():
                yield Effect(**json.loads(line))


def outbox(path: Path) -> Path:
    """The folder beside the journal in which systems that don't report leave what their work came to, by its handle."""
    return path.with_name("outbox")


def read(path: Path) -> Iterator[Effect]:
    """All lines, in the order in which they were written."""
    return Follower(path).more()
