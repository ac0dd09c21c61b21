"""What other systems say of the work that a task waits for (see `shared` for how a verb works).

They know a task by its id, the place of the work in its journal, and a token; no owner, no fence. What they get wrong
is one answer, `TaskNotFound`, so that it tells nobody which of the three was right.
"""

from __future__ import annotations

from perdure.domain import lifecycle, timeline
from perdure.domain.errors import AlreadySettled, TaskNotFound
from perdure.domain.journal import Entry, EntryState, settled
from perdure.domain.model import JSON, Task
from perdure.store import rows
from perdure.store.codec import encode

from . import shared, sql
from .writer import Transaction

__all__ = ["settle", "tell"]


def settle(tx: Transaction, task_id: str, place: str, token: str, state: EntryState, value: JSON, now: int) -> Task:
    task = shared.by_id(tx, task_id)
    after = settled(_work(tx, task, place), token, state, value)
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
    task = shared.by_id(tx, task_id)
    # What a settlement would come to says all there is to know: whether the token is right, and whether it is over.
    if settled(_work(tx, task, place), token, EntryState.DONE, None) is None or task.status.terminal:
        raise AlreadySettled
    event = lifecycle.on_tell(task, message)
    return shared.with_questions(tx, task) if event is None else shared.apply(tx, task, event, now)


def _work(tx: Transaction, task: Task, place: str) -> Entry | None:
    # Strange text comes from strangers, and is the name of nothing; SQLite would not so much as look for it.
    if not place.isascii():
        raise TaskNotFound
    return rows.entries(tx.all(sql.ENTRY_AT, task.seq, encode([place])), task, tx.codec).get(place)
