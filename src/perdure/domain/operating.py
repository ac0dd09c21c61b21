"""What operators say and are told: which tasks they mean, what a list of them shows, and what hastening comes to.

Nothing here has contents in it. An operator may look at a store without the keys that its values are sealed under, and
a list of a thousand tasks is no place for what was ordered or answered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from . import inputs, policy
from .journal import Entry, Journal, Verb
from .model import Operation, Owner, Status, Task
from .timeline import RunState

__all__ = ["Count", "Hastened", "Listed", "Listing", "Tally", "Which", "deadlines", "on_hasten", "woken"]

_UNFINISHED = frozenset(status for status in Status if not status.terminal)


@dataclass(frozen=True, slots=True)
class Which:
    """Which tasks an operator means. Each part that is there leaves some out; with none of them all are meant.

    `name`: that of the operation, a tool's as a rule, of whatever version. `older_ms`: created at least so long ago;
    `newer_ms`: less long ago than that; `unchanged_ms`: what its client sees of it has not changed for so long. A task
    that is over was changed last when it ended.
    """

    statuses: frozenset[Status] = frozenset(Status)
    name: str | None = None
    tenant: str | None = None
    principal: str | None = None
    older_ms: int | None = None
    newer_ms: int | None = None
    unchanged_ms: int | None = None

    @property
    def unfinished(self) -> bool:
        """Whether only unfinished tasks are meant, of which there are few beside those that are over."""
        return self.statuses <= _UNFINISHED

    def means(self, task: Task, operation: Operation, now: int) -> bool:
        """Whether a task is one of them."""
        owner = task.owner
        return (
            task.status in self.statuses
            and self.name in (None, operation.name)
            and self.tenant in (None, owner.tenant)
            and self.principal in (None, owner.principal)
            and self._fits(task, now)
        )

    def _fits(self, task: Task, now: int) -> bool:
        age, rest = now - task.created_at, now - task.updated_at
        older = self.older_ms is None or age >= self.older_ms
        newer = self.newer_ms is None or age < self.newer_ms
        return older and newer and (self.unchanged_ms is None or rest >= self.unchanged_ms)


@dataclass(frozen=True, slots=True)
class Listed:
    """A task in a list. `expires_at`: when its ttl runs out. `run` is None once it is over."""

    seq: int
    id: str
    owner: Owner
    handler: str
    status: Status
    created_at: int
    updated_at: int
    expires_at: int | None
    cancel_requested: bool
    run: RunState | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A part of a list, the newest first. `next` is where the next part begins; None: this was the last."""

    tasks: tuple[Listed, ...]
    next: int | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many tasks of one handler have one status, and when the first of them was created."""

    handler: str
    status: Status
    count: int
    oldest_at: int


@dataclass(frozen=True, slots=True)
class Tally:
    """A part of a count, by handler and status in the order of their names. `next`: as in a `Listing`."""

    counts: tuple[Count, ...]
    next: int | None


class Hastened(StrEnum):
    """What came of making a run due."""

    DUE = "due"
    """It waited for a time, and is due now."""
    READY = "ready"
    """It is due as it is."""
    HELD = "held"
    """A worker has it."""
    WAITING = "waiting"
    """It waits for somebody: no time that could be brought forward would get it any further."""
    OVER = "over"
    """Its task is over, and nothing runs any more."""


def on_hasten(due_at: int | None, now: int, *, held: bool, naps: bool, promised: Collection[int]) -> Hastened:
    """What comes of making a run due that was to be at `due_at` (`policy`); DUE: the store writes it.

    `naps`: whether any of its sleeps is not over, or any of its steps waits for the next try (`woken`); these are cut
    short with it, or the code would only go back to sleep. `promised`: when questions and work elsewhere are given up
    (`deadlines`). That stays: somebody was promised the time.
    """
    if held:
        return Hastened.HELD
    if due_at is None:
        return Hastened.WAITING
    if not policy.is_timer(due_at) or due_at <= now:
        return Hastened.READY
    return Hastened.WAITING if due_at in promised and not naps else Hastened.DUE


def woken(journal: Journal, now: int) -> tuple[Entry, ...]:
    """The sleeps that are not over at `now`, and the steps that are to be tried again, once their time has come."""
    return tuple(replace(entry, wake_at=now) for entry in journal.entries.values() if _naps(entry, now))


def _naps(entry: Entry, now: int) -> bool:
    waits = entry.retrying or (entry.verb is Verb.SLEEP and not entry.over)
    return waits and entry.wake_at is not None and entry.wake_at > now


def deadlines(journal: Journal) -> frozenset[int]:
    """When questions that are open, and work elsewhere that is under way, are given up."""
    work = [entry for entry in journal.entries.values() if entry.verb is Verb.EXTERNAL and not entry.over]
    instants = (*(each.wake_at for each in work), *(each.deadline for each in inputs.outstanding(journal.questions)))
    return frozenset(instant for instant in instants if instant is not None)
