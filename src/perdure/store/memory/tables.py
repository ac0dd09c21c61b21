"""What the model remembers: one record a task, with its run and all that belongs to it.

A record is one object, so whoever deletes it deletes everything. What stands in it is shared with nobody: values are
copied on their way in (`copies`) and on their way out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from typing import TypeVar

from perdure.domain import policy
from perdure.domain.journal import Journal, undone
from perdure.domain.model import Owner, Session, Task
from perdure.domain.timeline import KEPT, Event, Load, RunState

__all__ = ["Record", "Run", "Tables", "in_turn", "load"]

T = TypeVar("T")


@dataclass(slots=True)
class Run:
    handler: str
    due_at: int | None
    max_attempts: int
    timeout_ms: int | None
    session: str | None = None
    fence: int = 0
    failures: int = 0
    deaths: int = 0
    deadline_at: int | None = None
    minds_cancel: bool = False

    def is_ready(self, now: int) -> bool:
        return self.session is None and self.due_at is not None and self.due_at <= now

    def ready_since(self) -> int:
        """When it came to be due, of a run that is."""
        due_at = self.due_at or 0
        return due_at if policy.is_timer(due_at) else due_at - policy.due_at_once(0)

    def is_timer(self) -> bool:
        return self.due_at is not None and policy.is_timer(self.due_at)

    def wake(self, now: int) -> bool:
        """Make it due at once. Whether that is news: a run that is held, or due at once already, stays as it is."""
        if self.session is not None or (self.due_at is not None and not self.is_timer()):
            return False
        self.due_at = policy.due_at_once(now)
        return True

    def put_aside(self, due_at: int | None) -> None:
        """Nobody holds it any more, and it is due again at `due_at`."""
        self.session, self.deadline_at, self.due_at = None, None, due_at

    def state(self) -> RunState:
        return RunState(
            self.handler, self.due_at, self.session, self.fence, self.failures, self.deaths, self.deadline_at
        )


@dataclass(slots=True)
class Record:
    task: Task
    key: str | None
    digest: str | None
    run: Run | None
    journal: Journal = field(default_factory=Journal)
    events: deque[Event] = field(default_factory=lambda: deque[Event](maxlen=KEPT))

    def undo(self, failed: Iterable[str]) -> None:
        """Forget the steps at `failed` and what came after each; what was answered stays answered."""
        entries, questions = self.journal.entries, self.journal.questions
        places = {question.place for question in questions.values() if question.place is not None}
        gone = {place for each in failed for place in undone(places | set(entries), each)}
        self.journal = Journal(
            {place: entry for place, entry in entries.items() if place not in gone},
            {key: replace(one, place=None) if one.place in gone else one for key, one in questions.items()},
        )


@dataclass(slots=True)
class Tables:
    records: dict[int, Record] = field(default_factory=dict[int, Record])
    ids: dict[str, Record] = field(default_factory=dict[str, Record])
    keys: dict[tuple[Owner, str], Record] = field(default_factory=dict[tuple[Owner, str], Record])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    tombstones: dict[str, tuple[Owner, int]] = field(default_factory=dict[str, tuple[Owner, int]])
    seq: int = 0
    fence: int = 0
    session: int = 0

    def remember(self, record: Record) -> None:
        task = record.task
        self.records[task.seq] = self.ids[task.id] = record
        if record.key is not None:
            self.keys[task.owner, record.key] = record

    def forget(self, record: Record) -> None:
        task = record.task
        del self.records[task.seq], self.ids[task.id]
        if record.key is not None:
            del self.keys[task.owner, record.key]

    def runs(self) -> list[tuple[Record, Run]]:
        """All unfinished tasks with their runs, in the order of their numbers."""
        return [(record, record.run) for record in self.records.values() if record.run is not None]

    def ready(self, handler: str) -> dict[str, list[tuple[Record, Run]]]:
        """The runs that are due at once, by tenant, each tenant's longest due first."""
        ready: dict[str, list[tuple[Record, Run]]] = {}
        for record, run in sorted(self.runs(), key=_due):
            if run.handler == handler and run.session is None and run.due_at is not None and not run.is_timer():
                ready.setdefault(record.task.owner.tenant, []).append((record, run))
        return ready

    def promote_timers(self, now: int, most: int) -> None:
        """Make up to `most` of those whose instant has come due at once, since then."""
        timers = [(record, run) for record, run in self.runs() if run.is_timer() and run.is_ready(now)]
        for _, run in sorted(timers, key=_due)[:most]:
            run.due_at = policy.due_at_once(run.ready_since())

    def past_deadline(self, instant: int) -> list[tuple[Record, Run]]:
        """The runs that should have been over before `instant`, the longest overdue first."""
        late = [pair for pair in self.runs() if pair[1].deadline_at is not None and pair[1].deadline_at < instant]
        return sorted(late, key=lambda pair: (pair[1].deadline_at or 0, pair[0].task.seq))


def _due(pair: tuple[Record, Run]) -> tuple[int, int]:
    record, run = pair
    return (run.due_at or 0, record.task.seq)


def in_turn(shares: Mapping[str, Sequence[T]], after: str | None) -> Iterator[T]:
    """One of each tenant's, then the next of each, beginning with the tenant that comes after `after`."""
    tenants = sorted(shares)
    first = 0 if after is None else bisect_right(tenants, after)
    rounds = zip_longest(*(shares[tenant] for tenant in tenants[first:] + tenants[:first]))
    return (each for each in chain.from_iterable(rounds) if each is not None)


def load(handler: str, runs: Sequence[Run], now: int) -> Load:
    """What there is to run of one handler, of whose runs `runs` are all."""
    ready = [run.ready_since() for run in runs if run.is_ready(now)]
    held = sum(run.session is not None for run in runs)
    # A clock that was ahead and has been set back is no reason to speak of less than no time.
    oldest_ms = max(0, now - min(ready)) if ready else None
    return Load(handler, len(ready), held, len(runs) - len(ready) - held, oldest_ms)
