"""What operators ask: a task with all that belongs to it, and what there is to run. Reads, and nothing else."""

from __future__ import annotations

from perdure.domain.model import Owner
from perdure.domain.timeline import Inspection, Load
from perdure.store import rows

from . import shared, sql
from .writer import Transaction

__all__ = ["backlog", "backlog_of", "inspect", "loads", "unfinished"]


def inspect(tx: Transaction, task_id: str) -> Inspection:
    task = shared.with_questions(tx, shared.by_id(tx, task_id))
    operation = rows.operation(tx.one(sql.TASK_OPERATION, task.seq), task, tx.codec)
    run = tx.one(sql.RUN_STATE, task.seq)
    run_state = None if run is None else rows.run_state(run)
    events = rows.events(tx.all(sql.EVENT_ALL, task.seq), task, tx.codec)
    return Inspection(task, operation, run_state, shared.journal(tx, task), events)


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
