"""What the logs of a storm may say: complaints about the storm, and no secrets.

A process under fire has a lot to complain about, so what it says loudly is known by name here, and anything else counts
as found. What nobody may ever say is listed as well, since some of it is said in a low voice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

__all__ = ["OF_OURS", "OF_POSTGRESQL", "Known", "oddities"]

_SHOWN: Final = 300

Known = tuple[re.Pattern[str], re.Pattern[str]]
"""Which lines are loud, and which of those are known."""

OF_OURS: Final[Known] = (
    re.compile(
        r"\b(ERROR|CRITICAL)\b|deadlock|never retrieved|never awaited|unclosed|Fatal Python|"
        r"^\S*(Runtime|Resource|Deprecation)Warning"
    ),
    re.compile(
        # A process that was stopped past its lease, or cut off from the store.
        r"the lease lapsed; what runs here is left to other workers|"
        # The tools do so on purpose.
        r"chaos\.app|raised an unexpected exception|"
        # uvicorn, of a process that can't start with the store as it is.
        r"ERROR uvicorn\.error: (Traceback|Application startup failed)|^ERROR: +(Traceback|Application startup failed)"
    ),
)
OF_POSTGRESQL: Final[Known] = (
    re.compile(r"\b(ERROR|PANIC): |deadlock"),
    re.compile(
        r"canceling statement due to (statement timeout|lock timeout|user request)|"
        r"cannot execute .* in a read-only transaction"
    ),
)


def oddities(log: Path, known: Known, secrets: Sequence[str]) -> Iterator[str]:
    """What the log should not say, each with its line."""
    loud, expected = known
    if not log.exists():
        return
    with log.open(errors="replace") as file:
        for number, line in enumerate(file, 1):
            if any(secret in line for secret in secrets):
                yield f"{log.name}:{number} tells a secret"
            elif loud.search(line) and not expected.search(line):
                yield f"{log.name}:{number} says {line.strip()[:_SHOWN]!r}"
