"""What other systems say of the work that a task waits for (see `shared` for how a verb works).

They know a task by its id, the place of the work in its journal, and a token; no owner, no fence. What they get wrong
is one answer, `TaskNotFound`, so that it tells nobody which of the three was right. The token is looked at first: how
long it takes to read a task, with a result that may have megabytes, would tell that there is one.
"""

from __future__ import annotations

from perdure.domain import lifecycle, timeline
from perdure.domain.errors import AlreadySettled, TaskNotFound
from perdure.domain.journal import Entry, EntryState, settled
from perdure.domain.model import JSON, Owner, Task
from perdure.store import rows

from . import shared, sql
from .writer import Transaction

__all__ = ["settle", "tell"]


def settle(tx: Transaction, task_id: str, place: str, token: str, state: EntryState, value: JSON, now: int) -> Task:
    after = settled(_work(tx, task_id, place), token, state, value)
    task = shared.by_id(tx, task_id)
    if after is None:
        return shared.with_questions(tx, task)
    if task.status.terminal:
        raise AlreadySettled
    text = tx.codec.encode(after.value, task.owner, task.id, "entry", place)
    woken = shared.wake(tx, task.seq, now)
    shared.write(tx, task.seq, after, text)
    shared.note(tx, task, timeline.settled(now, after))
    if woken:
        shared.announce(tx, task, runnable=True)
    return shared.with_questions(tx, task)


def tell(tx: Transaction, task_id: str, place: str, token: str, message: str, now: int) -> Task:
    # What a settlement would come to says all there is to know: whether the token is right, and whether it is over.
    after = settled(_work(tx, task_id, place), token, EntryState.DONE, None)
    task = shared.by_id(tx, task_id)
    if after is None or task.status.terminal:
        raise AlreadySettled
    event = lifecycle.on_tell(task, message)
    return shared.with_questions(tx, task) if event is None else shared.apply(tx, task, event, now)


def _work(tx: Transaction, task_id: str, place: str) -> Entry | None:
    # Strange text comes from strangers, and is the name of nothing; SQLite would not so much as look for it.
    if not (task_id.isascii() and place.isascii()):
        raise TaskNotFound
    row = tx.one(sql.ENTRY_NAMED, task_id, place)
    if row is None:
        return None
    tenant, principal, *columns = row
    return rows.entry(columns, rows.Whose(Owner(tenant, principal), task_id), tx.codec)
