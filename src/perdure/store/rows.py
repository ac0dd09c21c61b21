"""Rows of a database to domain values and back: what the backends that speak SQL have in common.

They give the columns the same names and order, write JSON as text, and may have a number where another has a boolean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

from perdure.domain import policy
from perdure.domain.inputs import Questions
from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.model import (
    Failure,
    InputRequest,
    InputState,
    NewTask,
    Operation,
    Owner,
    Status,
    Task,
)
from perdure.domain.timeline import Event, EventKind, Load, RunState
from perdure.store.codec import decode, decode_object, encode, plain

__all__ = [
    "OPERATION",
    "OWNED",
    "OWNED_STANDING",
    "STANDING",
    "TASK",
    "entries",
    "entry",
    "events",
    "load",
    "new_values",
    "operation",
    "owned",
    "questions",
    "run_state",
    "task",
    "update_values",
]

OWNED: Final = (
    "seq, id, status, message, version, created_at, updated_at, ttl_ms, keep_ms, poll_ms, cancel_requested, result,"
    " error"
)
"""The columns of a task whose owner is known, as `owned` reads them.

Every poll reads them. What was ordered is not among them: a mebibyte of arguments would be read and parsed each time.
"""

OWNED_STANDING: Final = OWNED.replace("result, error", "NULL, NULL")
"""The same of a task that is one of many, and of which nobody asks yet how it ended."""

TASK: Final = f"tenant, principal, {OWNED}"
"""The columns of a task, as `task` reads them."""

STANDING: Final = f"tenant, principal, {OWNED_STANDING}"
"""The same of a task that is one of many."""

OPERATION: Final = "method, name, params, handler_version, accepts"
"""The columns of its operation, as `operation` reads them."""

# A look-up, where calling the class would cost as much as reading a column; and each poll makes a task from a row.
_STATUSES: Final = {status.value: status for status in Status}


def task(row: Any) -> Task:
    """The task in a row of `TASK`'s columns, without its questions."""
    return owned(Owner(row[0], row[1]), row[2:])


def owned(owner: Owner, row: Any) -> Task:
    """The owner's task in a row of `OWNED`'s columns, without its questions."""
    (
        seq, id_, status, message, version, created_at, updated_at, ttl_ms, keep_ms, poll_ms, cancel_requested, result,
        error,
    ) = row  # fmt: skip
    # By position, in the order in which `Task` has them: with as many names it would take half as long again.
    return Task(
        seq,
        id_,
        owner,
        _STATUSES[status],
        created_at,
        updated_at,
        version,
        message,
        ttl_ms,
        keep_ms,
        poll_ms,
        bool(cancel_requested),
        None if result is None else decode_object(result),
        None if error is None else _failure(error),
    )


def operation(row: Any) -> Operation:
    """The operation in a row of `OPERATION`'s columns."""
    method, name, params, version, accepts = row
    return Operation(method, name, decode_object(params), version, frozenset(accepts.split()))


def questions(rows: Iterable[Any]) -> Questions:
    """A task's questions: key, request, issued_at, state, response, place, deadline, awaited."""
    return {
        key: InputRequest(
            key,
            decode_object(request),
            issued_at,
            InputState(state),
            None if response is None else decode(response),
            place,
            deadline,
            bool(awaited),
        )
        for key, request, issued_at, state, response, place, deadline, awaited in rows
    }


def entries(rows: Iterable[Any]) -> dict[str, Entry]:
    """A task's journal, by place, from rows as `entry` reads them."""
    return {row[0]: entry(row) for row in rows}


def entry(row: Any) -> Entry:
    """An entry of the journal: place, verb, name, state, value, wake_at."""
    place, verb, name, state, value, wake_at = row
    return Entry(place, Verb(verb), name, EntryState(state), decode(value), wake_at)


def events(rows: Iterable[Any]) -> tuple[Event, ...]:
    """A task's timeline: at, kind, detail."""
    return tuple(Event(at, EventKind(kind), detail) for at, kind, detail in rows)


def run_state(row: Any) -> RunState:
    """Where a run is: handler, due_at, session, fence, failures, deaths, deadline_at."""
    return RunState(*row)


def load(row: Any, now: int) -> Load:
    """What there is to run of one handler: handler, ready, held, all of them, since when the first is ready."""
    handler, ready, held, all_, since = row
    # A clock that was ahead and has been set back is no reason to speak of less than no time.
    return Load(handler, ready, held, all_ - ready - held, None if since is None else max(0, now - since))


def new_values(new: NewTask, now: int) -> tuple[object, ...]:
    """What `sql.TASK_INSERT` binds.

    Raises:
        NotStorable: UTF-8 can't carry one of the texts, or there is no JSON form of the parameters.
    """
    ordered, key, digest = new.operation, new.key, new.digest
    texts = (new.id, new.owner.tenant, new.owner.principal, ordered.method, ordered.name, ordered.version)
    accepts = " ".join(sorted(ordered.accepts))
    plain("".join((*texts, accepts, key or "", digest or "")))
    return (
        *texts[:5],
        encode(ordered.params),
        ordered.version,
        now,
        now,
        new.ttl_ms,
        new.keep_ms,
        policy.expires_at(now, new.ttl_ms),
        new.poll_ms,
        accepts,
        key,
        digest,
    )


def update_values(changed: Task) -> tuple[object, ...]:
    """What `sql.TASK_UPDATE` binds."""
    error = changed.error
    return (
        changed.status.value,
        None if changed.message is None else plain(changed.message),
        changed.version,
        changed.updated_at,
        changed.ttl_ms,
        policy.expires_at(changed.created_at, changed.ttl_ms),
        int(changed.cancel_requested),
        None if changed.result is None else encode(changed.result),
        None if error is None else encode({"code": error.code, "message": plain(error.message), "data": error.data}),
        changed.seq,
    )


def _failure(text: str) -> Failure:
    stored = decode_object(text)
    return Failure(cast("int", stored["code"]), cast("str", stored["message"]), stored["data"])
