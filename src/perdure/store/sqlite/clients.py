"""What clients ask: tasks made, found again, listed, answered and cancelled (see `shared` for how a verb works)."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.domain import inputs, lifecycle, policy, timeline
from perdure.domain.errors import IdempotencyKeyReused
from perdure.domain.model import JSON, InputRequest, NewTask, Owner, Task
from perdure.store import rows

from . import shared, sql
from .writer import Transaction

__all__ = ["answer", "create", "open_questions", "page", "recall", "request_cancel"]


def create(tx: Transaction, new: NewTask, values: tuple[object, ...], now: int) -> Task:
    """`values` are `rows.new_values`: encoded by the caller, so that what can't be stored fails before the queue."""
    if new.key is not None and (known := _known(tx, new, new.key, now)):
        return known
    seq = tx.insert(sql.TASK_INSERT, *values)
    if seq is None:
        return shared.owned(tx, new.owner, new.id, now)
    task = lifecycle.created(seq, new, now)
    handler, tenant, due_at = new.operation.handler, new.owner.tenant, policy.due_at_once(now)
    tx.run(sql.RUN_INSERT, seq, handler, tenant, due_at, new.max_attempts, new.timeout_ms)
    shared.announce(tx, task, runnable=True)
    return task


def _known(tx: Transaction, new: NewTask, key: str, now: int) -> Task | None:
    """The task that stands there already: under the id in the first place, since that is this very call again."""
    if tx.one(sql.TASK_BY_ID, new.id) is not None:
        return shared.owned(tx, new.owner, new.id, now)
    return recall(tx, new.owner, key, new.digest)


def recall(tx: Transaction, owner: Owner, key: str, digest: str | None) -> Task | None:
    row = tx.one(sql.TASK_RECALL, owner.tenant, owner.principal, key)
    if row is None:
        return None
    stands_for, *columns = row
    task = rows.owned(owner, columns, tx.codec)
    if rows.digest(stands_for, task, tx.codec) != digest:
        raise IdempotencyKeyReused
    return shared.with_questions(tx, task)


def page(tx: Transaction, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
    before = shared.NEWEST if after is None else after
    found = tx.all(sql.TASK_PAGE, owner.tenant, owner.principal, before, limit)
    return tuple(rows.readable(found, lambda row: rows.owned(owner, row, tx.codec)))


def open_questions(tx: Transaction, owner: Owner, task_id: str, now: int) -> tuple[InputRequest, ...]:
    task = shared.owned_row(tx, owner, task_id, now)
    return () if task.status.terminal else inputs.outstanding(shared.questions(tx, task))


def answer(tx: Transaction, owner: Owner, task_id: str, responses: Mapping[str, JSON], now: int) -> Task:
    task = shared.owned_row(tx, owner, task_id, now)
    if task.status.terminal:
        return task
    questions = shared.questions(tx, task)
    accepted = inputs.accept(questions, responses)
    event = lifecycle.on_answers(task, inputs.awaited({**questions, **accepted})) if accepted else None
    resumed = isinstance(event, lifecycle.Resume)
    if resumed:
        shared.wake(tx, task.seq, now)
    # Encoded only now: what is ignored is ignored whatever its value is (contract 4), also one that can't be stored.
    for key, question in accepted.items():
        response = tx.codec.encode(question.response, owner, task.id, "response", key)
        tx.run(sql.INPUT_ANSWER, response, task.seq, key)
    if event is None:
        return shared.with_questions(tx, task)
    return shared.apply(tx, task, event, now, runnable=resumed)


def request_cancel(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    task = shared.owned_row(tx, owner, task_id, now)
    held, minded = tx.one(sql.RUN_MINDS, task.seq) or (0, 0)
    event = lifecycle.on_cancel(task, held=bool(held), minded=bool(minded))
    if event is None:
        return shared.with_questions(tx, task)
    # A task that is to stop asks nothing, so its questions are not so much as read: they may be why it is stopped.
    shared.wake(tx, task.seq, now)
    shared.note(tx, task, timeline.cancelled(now))
    return shared.apply(tx, task, event, now, runnable=bool(minded and not held))
