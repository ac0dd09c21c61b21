"""What nobody asks for and somebody has to do: runs of the dead, what overran, what expired, what is to be deleted.

Any number of replicas may do it at once: each look and its writes are one transaction, and who comes second finds
nothing left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from perdure.domain import lifecycle, timeline
from perdure.domain.errors import Unreadable
from perdure.domain.model import JSON
from perdure.domain.timeline import Event
from perdure.store import rows
from perdure.store.codec import encode, is_plain

from . import shared, sql
from .writer import Transaction

__all__ = ["bury", "expire", "free_overdue", "purge", "take_over"]


def take_over(tx: Transaction, gone: Collection[str], keep: Collection[str], now: int) -> int:
    deleted = tx.all(sql.SESSION_DELETE_DEAD, now, encode([*gone]), encode([*keep]))
    # What is no text any more was damaged, and no run names it.
    dead: list[JSON] = [session_id for (session_id,) in deleted if isinstance(session_id, str) and is_plain(session_id)]
    return _died(tx, tx.all(sql.RUN_OF_SESSIONS, encode(dead)), timeline.died, now)


def free_overdue(tx: Transaction, limit: int, late_ms: int, now: int) -> int:
    return _died(tx, tx.all(sql.RUN_LATE, now - late_ms, limit), timeline.overran, now)


def _died(
    tx: Transaction, runs: Sequence[tuple[int, int, int, int]], event: Callable[[int, int, int], Event], now: int
) -> int:
    """Free runs whose workers are as good as dead, and count that; the timeline says what happened to them."""
    for seq, before, max_attempts, minded in runs:
        try:
            task, deaths = shared.by_seq(tx, seq), before + 1
        except Unreadable:
            shared.free_unread(tx, seq, now)
            continue
        end = lifecycle.on_death(task, deaths, max_attempts, minded=bool(minded))
        shared.free(tx, task, end, now, deaths=1)
        shared.note(tx, task, event(now, deaths, max_attempts))
    return len(runs)


def expire(tx: Transaction, limit: int, now: int) -> int:
    overdue = tx.all(sql.TASK_OVERDUE, now, limit)
    expired = 0
    for task in rows.readable(overdue, lambda row: rows.task(row, tx.codec)):
        shared.apply(tx, task, lifecycle.Expire(), now)
        expired += 1
    return expired


def purge(tx: Transaction, limit: int, linger_ms: int, tombstone_ms: int, now: int) -> int:
    aged: list[JSON] = [task_id for (task_id,) in tx.all(sql.TOMBSTONE_AGED, now, limit)]
    tx.run(sql.TOMBSTONE_DELETE, encode(aged))
    over = [seq for (seq,) in tx.all(sql.TASK_PURGEABLE, now - linger_ms, limit)]
    return bury(tx, over, now + tombstone_ms)


def bury(tx: Transaction, over: Sequence[int], until: int) -> int:
    """Delete these tasks and all that belongs to them, and leave tombstones; how many."""
    if over:
        seqs = encode([*over])
        tx.run(sql.TOMBSTONE_INSERT, until, seqs)
        for statement in (sql.INPUT_DELETE, sql.ENTRY_DELETE, sql.EVENT_DELETE, sql.TASK_DELETE):
            tx.run(statement, seqs)
    return len(over)
