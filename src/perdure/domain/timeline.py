"""What operators look at: the timeline of a task, where its run is, and what waits for which handler.

The timeline is for operators, not for clients. It is written only for what is out of the ordinary, so that a task which
simply runs costs nothing here; and it is bounded, so that one which is retried for a year does not either.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .journal import Entry, Journal
from .model import InputRequest, Operation, Task

__all__ = [
    "KEPT",
    "Event",
    "EventKind",
    "Inspection",
    "Load",
    "RunState",
    "cancelled",
    "died",
    "hastened",
    "overran",
    "settled",
    "unanswered",
]

KEPT: Final = 200
"""How many events a task keeps: the newest."""


class EventKind(StrEnum):
    """What happened."""

    RETRY = "retry"
    """An attempt failed, and there will be another one."""
    STEP_RETRY = "step_retry"
    """A step failed, and will be tried again."""
    DEATH = "death"
    """The worker that ran it died or went silent."""
    OVERRUN = "overrun"
    """It ran past its deadline, and its worker did not end it."""
    CANCEL = "cancel"
    """Somebody asked it to stop."""
    UNANSWERED = "unanswered"
    """A question's time ran out."""
    SETTLED = "settled"
    """External work came to its end."""
    HASTEN = "hasten"
    """An operator made the run due before its time."""


@dataclass(frozen=True, slots=True)
class Event:
    """One of them. `at`: milliseconds since the epoch."""

    at: int
    kind: EventKind
    detail: str


# What stores write of their own accord, so that each backend says it in the same words. The other kinds carry the note
# of a worker.


def died(at: int, deaths: int, max_attempts: int) -> Event:
    """The worker is gone; `deaths` counts this one."""
    return Event(at, EventKind.DEATH, f"{deaths} of {max_attempts}")


def overran(at: int, deaths: int, max_attempts: int) -> Event:
    """The worker let the deadline pass, which counts as a death; `deaths` counts this one."""
    return Event(at, EventKind.OVERRUN, f"{deaths} of {max_attempts}")


def cancelled(at: int) -> Event:
    """Somebody asked the task to stop."""
    return Event(at, EventKind.CANCEL, "")


def hastened(at: int) -> Event:
    """An operator did not want to wait for the run any longer."""
    return Event(at, EventKind.HASTEN, "")


def unanswered(at: int, question: InputRequest) -> Event:
    """Nobody waits for the question's answer any more."""
    return Event(at, EventKind.UNANSWERED, question.key)


def settled(at: int, entry: Entry) -> Event:
    """External work came to its end; `entry` is what stands in the journal from then on."""
    return Event(at, EventKind.SETTLED, f"{entry.name}: {entry.state.value}")


@dataclass(frozen=True, slots=True)
class RunState:
    """Where the run of an unfinished task is.

    `session` holds it, or nobody. `due_at`: when it may be claimed; below zero at once (`policy.due_at_once`), None
    when it waits for somebody.
    """

    handler: str
    due_at: int | None
    session: str | None
    fence: int
    failures: int
    deaths: int
    deadline_at: int | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything about one task, whoever owns it. `run` is None once the task is over. `events`: oldest first."""

    task: Task
    operation: Operation
    run: RunState | None
    journal: Journal
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to run of one handler.

    `ready` runs could be claimed now, `held` ones are being run, `waiting` ones are parked (for answers, for a time,
    for work elsewhere). `oldest_ms`: how long the first of the ready ones has been ready.
    """

    handler: str
    ready: int
    held: int
    waiting: int
    oldest_ms: int | None
