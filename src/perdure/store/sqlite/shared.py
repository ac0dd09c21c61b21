"""What the verbs share: how they find a task, what holds a claim, and how a change is written.

The verbs themselves are in `clients`, `claims`, `workers`, `outsiders`, `operators` and `housekeeping`. Each is a
function that runs inside a transaction of the writer (or, if it only reads, on the connection that can't write): it
reads what it must, lets the domain decide (`lifecycle`, `inputs`, `journal`), and writes the answer. A transaction was
begun with BEGIN IMMEDIATE, so nothing can change between the look and the write. `now` is the reading of the store's
clock at which the verb happens.

Where a verb writes both, the run comes before its task, in every store alike: here the whole file is locked, but where
rows are, two orders would be a deadlock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from perdure.domain import inputs, lifecycle, policy
from perdure.domain.errors import IllegalTransition, LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.inputs import Questions
from perdure.domain.journal import Entry, Journal
from perdure.domain.model import Change, Claim, Owner, Status, Task
from perdure.domain.timeline import KEPT, Event
from perdure.store import rows
from perdure.store.base import PUT_OFF

from . import sql
from .writer import Transaction

__all__ = [
    "AT_ONCE",
    "NEWEST",
    "announce",
    "apply",
    "by_id",
    "by_seq",
    "find",
    "free",
    "free_unread",
    "held",
    "hold",
    "journal",
    "minds",
    "note",
    "owned",
    "owned_row",
    "questions",
    "row",
    "wake",
    "with_questions",
    "write",
]

AT_ONCE: Final = -policy.due_at_once(0)
"""How far back `policy.due_at_once` puts an instant."""
NEWEST: Final = 2**63 - 1
"""No task's number is as large."""

# -- looking -----------------------------------------------------------------------------------------------------------


def owned(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    """The owner's task, outstanding inputs included."""
    return with_questions(tx, owned_row(tx, owner, task_id, now))


def owned_row(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    """The same without its questions."""
    task = find(tx, owner, task_id)
    if task is None:
        buried = tx.one(sql.TOMBSTONE_OWNED, task_id, owner.tenant, owner.principal, now)
        raise TaskNotFound if buried is None else TaskExpired
    return task


def find(tx: Transaction, owner: Owner, task_id: str) -> Task | None:
    """The same, or None if there is none."""
    found = row(tx, owner, task_id)
    return None if found is None else rows.owned(owner, found, tx.codec)


def row(tx: Transaction, owner: Owner, task_id: str) -> Any | None:
    """The same as it lies in the file: `rows.OWNED`'s columns."""
    try:
        return tx.one(sql.TASK_OWNED, _sayable(task_id), owner.tenant, owner.principal)
    except UnicodeEncodeError:  # an owner's name that can't be stored is nobody's
        raise TaskNotFound from None


def by_id(tx: Transaction, task_id: str) -> Task:
    """The task, whoever's it is, without its questions."""
    found = tx.one(sql.TASK_BY_ID, _sayable(task_id))
    if found is None:
        raise TaskNotFound
    return rows.task(found, tx.codec)


def _sayable(task_id: str) -> str:
    # Ids are ASCII. SQLite would not so much as look for text that is no UTF-8, and an id may come from anywhere.
    if not task_id.isascii():
        raise TaskNotFound
    return task_id


def by_seq(tx: Transaction, seq: int) -> Task:
    """The task that a run belongs to, without its questions."""
    return rows.task(tx.one(sql.TASK_BY_SEQ, seq), tx.codec)


def with_questions(tx: Transaction, task: Task) -> Task:
    """The task as its owner sees it."""
    if task.status is not Status.INPUT_REQUIRED:
        return task
    return replace(task, inputs=inputs.awaited(questions(tx, task)))


def questions(tx: Transaction, task: Task) -> Questions:
    return rows.questions(tx.all(sql.INPUT_ALL, task.seq), task, tx.codec)


def journal(tx: Transaction, task: Task) -> Journal:
    return Journal(rows.entries(tx.all(sql.ENTRY_ALL, task.seq), task, tx.codec), questions(tx, task))


def held(tx: Transaction, claim: Claim) -> Task:
    """The task as it is now, if the claim still holds it."""
    hold(tx, claim)
    return by_seq(tx, claim.seq)


def minds(tx: Transaction, seq: int) -> bool:
    """Whether the code of a task wants to hear of a cancellation."""
    _, minded = tx.one(sql.RUN_MINDS, seq) or (0, 0)
    return bool(minded)


def hold(tx: Transaction, claim: Claim) -> None:
    """That the claim still holds.

    Raises:
        LeaseLost: it does not.
    """
    if tx.one(sql.RUN_HELD, claim.seq, claim.fence, claim.session) is None:
        raise LeaseLost


# -- writing -----------------------------------------------------------------------------------------------------------


def free(tx: Transaction, task: Task, end: lifecycle.Finish | None, now: int, *, deaths: int = 0) -> None:
    """Nobody runs it now: its end, or else somebody may run it at once, with so many deaths more."""
    if end is not None:
        apply(tx, task, end, now)
        return
    tx.run(sql.RUN_FREE, policy.due_at_once(now), 0, deaths, task.seq)
    announce(tx, task, runnable=True)


def free_unread(tx: Transaction, seq: int, now: int) -> None:
    """Nobody runs it now, and its task can't be read: it is put off, as by a claim."""
    tx.run(sql.RUN_FREE, now + PUT_OFF, 0, 0, seq)


def wake(tx: Transaction, seq: int, now: int) -> bool:
    """Make a run that is put aside due at once; whether it was, and was not due already."""
    return tx.run(sql.RUN_WAKE, policy.due_at_once(now), seq) > 0


def write(tx: Transaction, seq: int, entry: Entry, value: str) -> None:
    """Put an entry into the journal, with its value as it is stored, in place of what stands there."""
    state, verb = entry.state.value, entry.verb.value
    tx.run(sql.ENTRY_WRITE, seq, entry.place, verb, entry.name, state, value, entry.wake_at)


def note(tx: Transaction, task: Task, event: Event) -> None:
    """Add an event to the timeline, and let go what is too old by then."""
    seq, detail = task.seq, tx.codec.encode_note(event.kind, event.detail, task.owner, task.id)
    (position,) = tx.one(sql.EVENT_INSERT, seq, event.at, event.kind.value, detail, seq) or (0,)
    if position >= KEPT:
        tx.run(sql.EVENT_FORGET, seq, position - KEPT)


def apply(tx: Transaction, task: Task, event: lifecycle.Event, now: int, *, runnable: bool = False) -> Task:
    """Write what the state machine makes of the event. A run ends with its task: in one, and the run first."""
    changed = lifecycle.apply(task, event, now)
    if changed.status.terminal:
        tx.run(sql.RUN_DELETE, task.seq)
    if not tx.run(sql.TASK_UPDATE, *rows.update_values(changed, tx.codec)):
        raise IllegalTransition(f"Task number {task.seq} is already over")
    announce(tx, changed, runnable=runnable, cancel=isinstance(event, lifecycle.RequestCancel))
    return changed


def announce(tx: Transaction, task: Task, *, runnable: bool = False, cancel: bool = False) -> None:
    """Tell of the change once it is committed."""
    tx.changes.append(Change(task.id, task.seq, task.status, runnable, cancel))
