"""The kinds of tasks: for each tool of `app` what it is called with, how often, and what may become of it.

Known to the tools, to the clients and to the oracle, so that the three agree on the numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ATTEMPTS", "BRIEF", "DEATHS", "KINDS", "TRIES", "TWICE", "ToolKind"]

JSON = Any

ATTEMPTS: Final = 4
"""Runs in all of a tool that has `retry=`."""
TWICE: Final = 2
"""The same of a tool that runs past its `timeout=`."""
TRIES: Final = 5
"""Of a step that has `retry=`."""
DEATHS: Final = 2
"""Workers that a poisoned task may kill."""
BRIEF: Final = 20
"""Seconds that a task of the tool with a short life may live."""


@dataclass(frozen=True, slots=True)
class ToolKind:
    """A tool: its arguments beside the label, its share of all tasks, and how a task of it may end.

    `ends`: completed, error (completed, and the result is one), overrun (an error too: its time was over), failed,
    expired, exhausted (failed, after its last worker's death). Cancelled only if somebody asked.
    """

    arguments: Callable[[random.Random], dict[str, JSON]]
    share: float
    ends: frozenset[str] = frozenset({"completed"})
    impatient: bool = False
    """Whether it may go on without an answer, or without a word of the other system."""
    attempts: int = 1
    """How often it may run, for errors of its own."""


def _inside(rng: random.Random) -> dict[str, JSON]:
    """Whether it fails in a step, or between two."""
    return {"inside": rng.random() < 0.6}


KINDS: Final[Mapping[str, ToolKind]] = {
    "compute": ToolKind(lambda rng: {"seconds": rng.uniform(0.05, 8)}, 3),
    "threaded": ToolKind(lambda rng: {"seconds": rng.uniform(0.05, 2)}, 1),
    "progress": ToolKind(lambda rng: {"rounds": rng.randrange(1, 15)}, 1),
    "stubborn": ToolKind(lambda rng: {"seconds": rng.uniform(0.5, 3)}, 1),
    "brief": ToolKind(lambda rng: {"seconds": rng.uniform(0.05, 3)}, 1, frozenset({"completed", "expired"})),
    "one_question": ToolKind(lambda _: {}, 2),
    "three_questions": ToolKind(lambda _: {}, 3),
    "impatient": ToolKind(lambda rng: {"seconds": rng.uniform(0.2, 6)}, 3, impatient=True),
    "stairs": ToolKind(lambda rng: {"steps": rng.randrange(1, 16)}, 3),
    "errand": ToolKind(lambda rng: {"seconds": rng.uniform(0.05, 1)}, 2),
    "nap": ToolKind(lambda rng: {"seconds": rng.uniform(0.1, 5)}, 2),
    "order": ToolKind(lambda _: {}, 4),
    "fan_out": ToolKind(lambda _: {}, 3),
    "tool_error": ToolKind(lambda _: {}, 1, frozenset({"error"})),
    "mcp_error": ToolKind(lambda _: {}, 1, frozenset({"failed"})),
    "fickle": ToolKind(lambda rng: {"failures": rng.randrange(1, ATTEMPTS), **_inside(rng)}, 3, attempts=ATTEMPTS),
    "hopeless": ToolKind(_inside, 2, frozenset({"error"}), attempts=ATTEMPTS),
    "persistent": ToolKind(lambda rng: {"odds": rng.choice((0.3, 0.6, 1)), "pause": rng.choice((0.2, 1.1))}, 3),
    "overdue": ToolKind(
        lambda rng: {"seconds": rng.uniform(0.1, 3), "deaf": rng.random() < 0.4},
        2,
        frozenset({"completed", "overrun"}),
        attempts=TWICE,
    ),
    "outsourced": ToolKind(lambda rng: {"minds": rng.random() < 0.5}, 3),
    "watchful": ToolKind(lambda rng: {"minds": rng.random() < 0.5}, 2),
    "hurried": ToolKind(lambda rng: {"seconds": rng.uniform(0.2, 8)}, 2, impatient=True),
    # Rare: each is a fault, and for all else that its worker runs.
    "poison": ToolKind(lambda _: {}, 0.15, frozenset({"exhausted"})),
}
