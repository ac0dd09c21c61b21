"""What operators ask: a task with all that belongs to it, lists and counts, what there is to run; and what they do."""

from __future__ import annotations

from collections.abc import Collection

from perdure.domain import timeline
from perdure.domain.model import Owner
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which, on_hasten
from perdure.domain.timeline import Inspection, Load
from perdure.store import rows
from perdure.store.codec import encode

from . import housekeeping, shared, sql, sql_operating
from .writer import Transaction

__all__ = [
    "backlog",
    "backlog_of",
    "browse",
    "discard",
    "find_by_prefix",
    "hasten",
    "inspect",
    "loads",
    "tally",
    "unfinished",
]

# -- looking -----------------------------------------------------------------------------------------------------------


def inspect(tx: Transaction, task_id: str) -> Inspection:
    task = shared.with_questions(tx, shared.by_id(tx, task_id))
    operation = rows.operation(tx.one(sql.TASK_OPERATION, task.seq), task, tx.codec)
    run = tx.one(sql.RUN_STATE, task.seq)
    run_state = None if run is None else rows.run_state(run)
    events = rows.events(tx.all(sql.EVENT_ALL, task.seq), task, tx.codec)
    return Inspection(task, operation, run_state, shared.journal(tx, task), events)


def browse(tx: Transaction, which: Which, after: int | None, limit: int, now: int) -> Listing:
    newest = sql_operating.NEWEST_UNFINISHED if which.unfinished else sql_operating.NEWEST
    seqs, end = _part(tx, newest, after, limit)
    found = tx.all(sql_operating.TASK_LISTED, encode([*seqs]), *_meant(which, now))
    return Listing(tuple(rows.readable(found, lambda row: rows.listed(row, tx.codec))), end)


def _meant(which: Which, now: int) -> tuple[object, ...]:
    """As `TASK_LISTED` takes it."""
    spans = which.older_ms, which.newer_ms, which.unchanged_ms
    instants = (None if span is None else now - span for span in spans)
    statuses = encode([status.value for status in which.statuses])
    return (statuses, which.name, which.tenant, which.principal, *instants)


def _part(tx: Transaction, newest: str, after: int | None, limit: int) -> tuple[list[int], int | None]:
    seqs = [seq for (seq,) in tx.all(newest, shared.NEWEST if after is None else after, limit)]
    return seqs, seqs[-1] if len(seqs) == limit else None


def find_by_prefix(tx: Transaction, prefix: str, most: int) -> tuple[Listed, ...]:
    found = tx.all(sql_operating.TASK_NAMED, prefix, rows.end_of(prefix), most)
    return tuple(rows.readable(found, lambda row: rows.listed(row, tx.codec)))


def tally(tx: Transaction, after: int | None, limit: int) -> Tally:
    seqs, end = _part(tx, sql_operating.NEWEST, after, limit)
    found = tx.all(sql_operating.TASK_TALLY, encode([*seqs]))
    return Tally(rows.counts(found, tx.codec), end)


def loads(tx: Transaction, now: int) -> tuple[Load, ...]:
    return tuple(rows.load(row, now) for row in tx.all(sql.RUN_QUEUES, now, shared.AT_ONCE, now))


def backlog(tx: Transaction, most: int, now: int) -> dict[str, int]:
    return dict(tx.all(sql.RUN_BACKLOG, now, most))


def backlog_of(tx: Transaction, most: int, tenant: str, now: int) -> dict[str, int]:
    (count,) = tx.one(sql.RUN_BACKLOG_OF, tenant, now, tenant, most) or (0,)
    return {tenant: count} if count else {}


def unfinished(tx: Transaction, owner: Owner, most: int) -> int:
    (count,) = tx.one(sql.TASK_UNFINISHED, owner.tenant, owner.principal, most) or (0,)
    return count


# -- a hand where one is needed ----------------------------------------------------------------------------------------


def hasten(tx: Transaction, task_id: str, now: int) -> Hastened:
    task = shared.by_id(tx, task_id)
    row = tx.one(sql.RUN_STATE, task.seq)
    if row is None:
        return Hastened.OVER
    run, naps = rows.run_state(row), tx.one(sql_operating.ENTRY_NAPS, task.seq, now) is not None
    promised = {instant for (instant,) in tx.all(sql_operating.PROMISED, task.seq, task.seq)}
    done = on_hasten(run.due_at, now, held=run.session is not None, naps=naps, promised=promised)
    if done is Hastened.DUE:
        shared.wake(tx, task.seq, now)
        tx.run(sql_operating.ENTRY_HASTEN, now, task.seq, now)
        shared.note(tx, task, timeline.hastened(now))
        shared.announce(tx, task, runnable=True)
    return done


def discard(tx: Transaction, task_ids: Collection[str], tombstone_ms: int, now: int) -> int:
    sayable = encode([task_id for task_id in task_ids if task_id.isascii()])
    return housekeeping.bury(tx, [seq for (seq,) in tx.all(sql_operating.TASK_DISCARDED, sayable)], now + tombstone_ms)
