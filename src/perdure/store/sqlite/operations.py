"""The store's writing verbs as they run inside a transaction of the writer.

Each function is one verb: it reads what it must, lets the domain decide (`lifecycle.apply`, `inputs`), and writes the
answer. The transaction was begun with BEGIN IMMEDIATE, so nothing can change between the look and the write. `now` is
the reading of the store's clock at which the verb happens.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from perdure.domain import inputs, lifecycle, policy
from perdure.domain.errors import IllegalTransition, LeaseLost, TaskExpired, TaskNotFound
from perdure.domain.inputs import Journal
from perdure.domain.model import (
    JSON,
    Change,
    Claim,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Renewal,
    Session,
    Status,
    Task,
)
from perdure.store.codec import encode

from . import rows, sql
from .writer import Transaction

# -- what clients ask --------------------------------------------------------------------------------------------------


def create(tx: Transaction, new: NewTask, values: tuple[object, ...], now: int) -> Task:
    seq = tx.insert(sql.TASK_INSERT, *values)
    if seq is None:
        return owned(tx, new.owner, new.id, now)
    task = lifecycle.created(seq, new, now)
    tx.run(sql.RUN_INSERT, seq, new.operation.handler, policy.due_at_once(now), new.max_attempts)
    _announce(tx, task, runnable=True)
    return task


def answer(tx: Transaction, owner: Owner, task_id: str, responses: Mapping[str, JSON], now: int) -> Task:
    task = owned(tx, owner, task_id, now)
    if task.status is not Status.INPUT_REQUIRED:
        return task
    journal = dict(_journal(tx, task.seq))
    accepted = inputs.accept(journal, responses)
    if not accepted:
        return task
    # Encoded only now: what is ignored is ignored whatever its value is (contract 4), also one that can't be stored.
    for key, entry in accepted.items():
        tx.run(sql.INPUT_ANSWER, encode(entry.response), task.seq, key)
    still = inputs.outstanding(journal | accepted)
    if not still:
        tx.run(sql.RUN_RELEASE, policy.due_at_once(now), task.seq)
    return _apply(tx, task, lifecycle.on_answers(still), now)


def request_cancel(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    task = owned(tx, owner, task_id, now)
    event = lifecycle.on_cancel(task, held=tx.one(sql.RUN_IS_HELD, task.seq) is not None)
    return task if event is None else _apply(tx, task, event, now)


# -- what workers ask --------------------------------------------------------------------------------------------------


def open_session(tx: Transaction, lease_ms: int, info: JSONObject, now: int) -> Session:
    session = Session(secrets.token_hex(8), now + lease_ms, info)
    tx.run(sql.SESSION_INSERT, session.id, session.expires_at, encode(info))
    return session


def renew(tx: Transaction, session_id: str, lease_ms: int, now: int) -> Renewal:
    if not tx.run(sql.SESSION_RENEW, now + lease_ms, session_id):
        raise LeaseLost
    return Renewal(frozenset(seq for (seq,) in tx.all(sql.RUN_CANCELLED, session_id)))


def close_session(tx: Transaction, session_id: str, now: int) -> None:
    tx.run(sql.SESSION_DELETE, session_id)
    for seq, attempt, _ in tx.all(sql.RUN_OF_SESSIONS, encode([session_id])):
        task = _task(tx, seq)
        _free(tx, task, lifecycle.on_free(task), attempt, now)


def take_over(tx: Transaction, gone: Collection[str], keep: str, now: int) -> int:
    dead: list[JSON] = [session_id for (session_id,) in tx.all(sql.SESSION_DELETE_DEAD, now, encode([*gone]), keep)]
    held = tx.all(sql.RUN_OF_SESSIONS, encode(dead))
    for seq, attempt, max_attempts in held:
        task = _task(tx, seq)
        _free(tx, task, lifecycle.on_death(task, attempt, max_attempts), attempt + 1, now)
    return len(held)


def claim(tx: Transaction, session_id: str, handlers: Sequence[str], limit: int, now: int) -> tuple[Claim, ...]:
    if tx.one(sql.SESSION_ALIVE, session_id, now) is None:
        raise LeaseLost
    # The first fence is drawn only when there is something to claim, so that an idle worker writes nothing: an empty
    # transaction costs no fsync.
    fence = 0
    claims: list[Claim] = []
    for handler in handlers:
        if len(claims) == limit:
            break
        if tx.one(sql.RUN_ANY_DUE, handler, now) is None:
            continue
        fence = fence or _next_fence(tx)
        taken = tx.all(sql.RUN_CLAIM, session_id, fence, handler, now, limit - len(claims))
        claims += [Claim(_task(tx, seq), fence, attempt) for _, seq, attempt in sorted(taken)]
    return tuple(claims)


def report(tx: Transaction, claim: Claim, message: str, now: int) -> None:
    _apply(tx, _held(tx, claim), lifecycle.Report(message), now)


def park(tx: Transaction, claim: Claim, asked: Mapping[str, JSONObject], texts: Mapping[str, str], now: int) -> Task:
    """`texts` are the encoded `asked`: encoded by the caller, so that what can't be stored fails before the queue."""
    task = _held(tx, claim)
    journal = dict(_journal(tx, claim.seq))
    entered = inputs.admit(journal, asked, now)
    event = lifecycle.on_park(task, inputs.outstanding(journal | entered))
    if isinstance(event, lifecycle.Finish):
        return _apply(tx, task, event, now)
    for position, key in enumerate(entered, len(journal)):
        tx.run(sql.INPUT_INSERT, claim.seq, key, position, texts[key], now)
    if event is None:
        _free(tx, task, None, claim.attempt, now)
        return task
    tx.run(sql.RUN_PARK, claim.seq)
    return _apply(tx, task, event, now)


def finish(tx: Transaction, claim: Claim, outcome: Outcome, now: int) -> Task:
    return _apply(tx, _held(tx, claim), lifecycle.Finish(outcome), now)


def release(tx: Transaction, claim: Claim, now: int) -> None:
    task = _held(tx, claim)
    _free(tx, task, lifecycle.on_free(task), claim.attempt, now)


# -- housekeeping ------------------------------------------------------------------------------------------------------


def expire(tx: Transaction, limit: int, now: int) -> int:
    overdue = tx.all(sql.TASK_OVERDUE, now, limit)
    for row in overdue:
        _apply(tx, rows.task(row), lifecycle.Expire(), now)
    return len(overdue)


def purge(tx: Transaction, limit: int, linger_ms: int, tombstone_ms: int, now: int) -> int:
    aged: list[JSON] = [task_id for (task_id,) in tx.all(sql.TOMBSTONE_AGED, now, limit)]
    tx.run(sql.TOMBSTONE_DELETE, encode(aged))
    over: list[JSON] = [seq for (seq,) in tx.all(sql.TASK_PURGEABLE, now - linger_ms, limit)]
    if over:
        seqs = encode(over)
        tx.run(sql.TOMBSTONE_INSERT, now + tombstone_ms, seqs)
        tx.run(sql.INPUT_DELETE, seqs)
        tx.run(sql.TASK_DELETE, seqs)
    return len(over)


# -- inside ------------------------------------------------------------------------------------------------------------


def owned(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    """The owner's task, outstanding inputs included. Also what `get` runs, on the reading connection."""
    task = owned_row(tx, owner, task_id, now)
    if task.status is not Status.INPUT_REQUIRED:
        return task
    return replace(task, inputs=inputs.outstanding(_journal(tx, task.seq)))


def owned_row(tx: Transaction, owner: Owner, task_id: str, now: int) -> Task:
    """The same without its questions."""
    row = tx.one(sql.TASK_OWNED, task_id, owner.tenant, owner.principal)
    if row is None:
        buried = tx.one(sql.TOMBSTONE_OWNED, task_id, owner.tenant, owner.principal, now)
        raise TaskNotFound if buried is None else TaskExpired
    return rows.task(row)


def _task(tx: Transaction, seq: int) -> Task:
    return rows.task(tx.one(sql.TASK_BY_SEQ, seq))


def _journal(tx: Transaction, seq: int) -> Journal:
    return rows.journal(tx.all(sql.INPUT_JOURNAL, seq))


def _next_fence(tx: Transaction) -> int:
    (fence,) = tx.one(sql.FENCE_NEXT) or (0,)
    return fence


def _held(tx: Transaction, claim: Claim) -> Task:
    """The task as it is now, if the claim still holds it."""
    if tx.one(sql.RUN_HELD, claim.seq, claim.fence) is None:
        raise LeaseLost
    return _task(tx, claim.seq)


def _free(tx: Transaction, task: Task, end: lifecycle.Finish | None, attempt: int, now: int) -> None:
    """Nobody runs it now: its end, or else somebody may run it at once."""
    if end is not None:
        _apply(tx, task, end, now)
        return
    tx.run(sql.RUN_FREE, policy.due_at_once(now), attempt, task.seq)
    _announce(tx, task, runnable=True)


def _apply(tx: Transaction, task: Task, event: lifecycle.Event, now: int) -> Task:
    """Write what the state machine makes of the event. A run ends with its task: in one, and the run first."""
    changed = lifecycle.apply(task, event, now)
    if changed.status.terminal:
        tx.run(sql.RUN_DELETE, task.seq)
    if not tx.run(sql.TASK_UPDATE, *rows.update_values(changed)):
        raise IllegalTransition(f"Task number {task.seq} is already over")
    _announce(
        tx, changed, runnable=isinstance(event, lifecycle.Resume), cancel=isinstance(event, lifecycle.RequestCancel)
    )
    return changed


def _announce(tx: Transaction, task: Task, *, runnable: bool = False, cancel: bool = False) -> None:
    tx.changes.append(Change(task.id, task.seq, task.status, runnable, cancel))
