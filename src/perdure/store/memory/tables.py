"""What the model remembers: one record a task, with its run and all that belongs to it.

A record is one object, so whoever deletes it deletes everything. What stands in it is shared with nobody: values are
copied on their way in (`copies`) and on their way out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import TypeVar

from perdure.domain import policy
from perdure.domain.model import Operation, Owner, Session, Status
from perdure.domain.operating import Count, Listed
from perdure.domain.timeline import KEPT, Event, Load
from perdure.store.records import Record, Run

__all__ = ["Kept", "Tables", "count", "in_turn", "listed", "load"]

T = TypeVar("T")


@dataclass(slots=True)
class Kept(Record):
    """A record with what was ordered, its whole timeline, and the key that the task is known by."""

    operation: Operation = field(kw_only=True)
    key: str | None = None
    digest: str | None = None
    timeline: deque[Event] = field(default_factory=lambda: deque[Event](maxlen=KEPT))


@dataclass(slots=True)
class Tables:
    records: dict[int, Kept] = field(default_factory=dict[int, Kept])
    ids: dict[str, Kept] = field(default_factory=dict[str, Kept])
    keys: dict[tuple[Owner, str], Kept] = field(default_factory=dict[tuple[Owner, str], Kept])
    sessions: dict[str, Session] = field(default_factory=dict[str, Session])
    tombstones: dict[str, tuple[Owner, int]] = field(default_factory=dict[str, tuple[Owner, int]])
    seq: int = 0
    fence: int = 0
    session: int = 0

    def remember(self, record: Kept) -> None:
        task = record.task
        self.records[task.seq] = self.ids[task.id] = record
        if record.key is not None:
            self.keys[task.owner, record.key] = record

    def forget(self, record: Kept) -> None:
        task = record.task
        del self.records[task.seq], self.ids[task.id]
        if record.key is not None:
            del self.keys[task.owner, record.key]

    def runs(self) -> list[tuple[Kept, Run]]:
        """All unfinished tasks with their runs, in the order of their numbers."""
        return [(record, record.run) for record in self.records.values() if record.run is not None]

    def newest(self, after: int | None, limit: int, *, unfinished: bool = False) -> tuple[list[Kept], int | None]:
        """Up to `limit` tasks of smaller numbers than `after`, the newest first, and where the next ones begin."""
        records = [record for record in self.records.values() if record.run is not None or not unfinished]
        below = [record for record in records if after is None or record.task.seq < after]
        found = sorted(below, key=lambda record: record.task.seq, reverse=True)[:limit]
        return found, found[-1].task.seq if len(found) == limit else None

    def ready(self, handler: str) -> dict[str, list[tuple[Kept, Run]]]:
        """The runs that are due at once, by tenant, each tenant's longest due first."""
        ready: dict[str, list[tuple[Kept, Run]]] = {}
        for record, run in sorted(self.runs(), key=_due):
            if run.handler == handler and run.session is None and run.due_at is not None and not run.is_timer():
                ready.setdefault(record.task.owner.tenant, []).append((record, run))
        return ready

    def promote_timers(self, now: int, most: int) -> None:
        """Make up to `most` of those whose instant has come due at once, since then."""
        timers = [(record, run) for record, run in self.runs() if run.is_timer() and run.is_ready(now)]
        for _, run in sorted(timers, key=_due)[:most]:
            run.due_at = policy.due_at_once(run.ready_since())

    def past_deadline(self, instant: int) -> list[tuple[Kept, Run]]:
        """The runs that should have been over before `instant`, the longest overdue first."""
        late = [pair for pair in self.runs() if pair[1].deadline_at is not None and pair[1].deadline_at < instant]
        return sorted(late, key=lambda pair: (pair[1].deadline_at or 0, pair[0].task.seq))


def _due(pair: tuple[Kept, Run]) -> tuple[int, int]:
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


def listed(record: Kept) -> Listed:
    """As operators see it in a list."""
    task, run = record.task, None if record.run is None else record.run.state()
    expires_at = policy.expires_at(task.created_at, task.ttl_ms)
    return Listed(
        task.seq,
        task.id,
        task.owner,
        record.operation.handler,
        task.status,
        task.created_at,
        task.updated_at,
        expires_at,
        task.cancel_requested,
        run,
    )


def count(records: Sequence[Kept]) -> tuple[Count, ...]:
    """How many there are of each handler and status."""
    created: dict[tuple[str, Status], list[int]] = {}
    for record in records:
        created.setdefault((record.operation.handler, record.task.status), []).append(record.task.created_at)
    return tuple(Count(*key, len(each), min(each)) for key, each in sorted(created.items()))
