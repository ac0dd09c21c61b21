"""Rows to domain values and back. The order of columns is `sql._TASK`'s."""

from __future__ import annotations

from typing import Any, Final, cast

from perdure.domain import policy
from perdure.domain.inputs import Journal
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
from perdure.store.codec import decode, decode_object, encode, plain

__all__ = ["journal", "new_values", "task", "update_values"]

# A look-up, where calling the class would cost as much as reading a column; and each poll makes a task from a row.
_STATUSES: Final = {status.value: status for status in Status}


def task(row: Any) -> Task:
    """The task in a row of `sql._TASK`'s columns, without its questions."""
    (
        seq, id_, tenant, principal, method, name, params, status, message, version, created_at, updated_at,
        ttl_ms, keep_ms, poll_ms, cancel_requested, accepts, result, error,
    ) = row  # fmt: skip
    return Task(
        seq=seq,
        id=id_,
        owner=Owner(tenant, principal),
        operation=Operation(method, name, decode_object(params)),
        status=_STATUSES[status],
        created_at=created_at,
        updated_at=updated_at,
        version=version,
        message=message,
        ttl_ms=ttl_ms,
        keep_ms=keep_ms,
        poll_ms=poll_ms,
        cancel_requested=bool(cancel_requested),
        accepts=frozenset(accepts.split()),
        result=None if result is None else decode_object(result),
        error=None if error is None else _failure(error),
    )


def journal(rows: list[Any]) -> Journal:
    """A task's questions from rows of `sql.INPUT_JOURNAL`."""
    return {
        key: InputRequest(
            key,
            decode_object(request),
            issued_at,
            InputState(state),
            None if response is None else decode(response),
        )
        for key, request, issued_at, state, response in rows
    }


def new_values(new: NewTask, now: int) -> tuple[object, ...]:
    """What `sql.TASK_INSERT` binds."""
    return (
        new.id,
        new.owner.tenant,
        new.owner.principal,
        new.operation.method,
        new.operation.name,
        encode(new.operation.params),
        now,
        now,
        new.ttl_ms,
        new.keep_ms,
        policy.expires_at(now, new.ttl_ms),
        new.poll_ms,
        " ".join(sorted(new.accepts)),
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
        None if error is None else encode({"code": error.code, "message": error.message, "data": error.data}),
        changed.seq,
    )


def _failure(text: str) -> Failure:
    stored = decode_object(text)
    return Failure(cast("int", stored["code"]), cast("str", stored["message"]), stored["data"])
