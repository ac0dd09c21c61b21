"""What operators do: stop tasks, hurry them or order them anew, and throw away what is over.

Each is a verb of the store at a time, on one task or on a bounded number of them, while servers and workers go on.
What a task has become meanwhile decides, not what it was when it was looked at.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Iterable
from typing import Final

from perdure.domain import ids
from perdure.domain.errors import TaskExpired, TaskNotFound, Unreadable
from perdure.domain.model import NewTask, Status, Task
from perdure.domain.operating import Hastened, Listed, Which
from perdure.domain.timeline import Inspection
from perdure.store.base import Store

from .access import Refused, about, listed_as, resolve_id, walk, with_store
from .plain import Plain

__all__ = ["cancel_all", "cancel_named", "count", "hurry", "order_anew", "purge"]

_BATCH: Final = 200
"""Tasks that are deleted at once, as the janitor does."""
_WHY_NOT: Final = {
    Hastened.HELD: "a worker has it; cancel it, or wait until it comes back",
    Hastened.READY: "it is due already, and waits for a worker",
    Hastened.WAITING: "it waits for an answer or for work elsewhere",
    Hastened.OVER: "it is over; --anew orders another one",
}
_AGAIN: Final = "perdure:anew:"
"""How the idempotency keys of tasks begin that were ordered anew."""


def count(store: str, which: Which) -> int:
    """How many tasks are meant."""

    async def look(opened: Store) -> int:
        return sum([len(tasks) async for tasks in walk(opened, which)])

    return with_store(store, look)


# -- cancelling --------------------------------------------------------------------------------------------------------


def cancel_named(store: str, texts: Iterable[str]) -> list[Plain]:
    """Ask these tasks to stop; of each what came of it, or why it could not be asked."""

    async def act(opened: Store) -> list[Plain]:
        return [await _tried(text, _cancel_named(opened, text)) for text in texts]

    return with_store(store, act)


def cancel_all(store: str, which: Which) -> list[Plain]:
    """Ask all that are meant to stop; of each what came of it."""

    async def act(opened: Store) -> list[Plain]:
        return [await _tried(each.id, _cancel(opened, each)) async for tasks in walk(opened, which) for each in tasks]

    return with_store(store, act)


async def _tried(name: str, cancel: Awaitable[Plain]) -> Plain:
    """What came of it; one that can't be cancelled is no reason to leave the others alone."""
    try:
        return await cancel
    except (TaskNotFound, TaskExpired, Unreadable, Refused) as error:
        return {"task": name, "outcome": "refused", "why": str(error)}


async def _cancel_named(store: Store, text: str) -> Plain:
    with about(text):
        return await _cancel(store, await listed_as(store, text))


async def _cancel(store: Store, task: Listed) -> Plain:
    after = await store.request_cancel(task.owner, task.id)
    return {"task": task.id, "outcome": _outcome(task, after), "status": after.status.value}


def _outcome(before: Listed, after: Task) -> str:
    """What came of asking. Of two who ask at the same moment both have cancelled it: neither found it over."""
    if not after.status.terminal:
        return "asked"
    return "cancelled" if after.status is Status.CANCELLED and not before.status.terminal else "over"


# -- retrying ----------------------------------------------------------------------------------------------------------


def hurry(store: str, text: str) -> Plain:
    """Make a run due that waits for a time (the store's verb is `hasten`). What is over is left as it is.

    Raises:
        SystemExit: it waits for no time; one line says why.
    """

    async def hasten(opened: Store) -> tuple[str, Hastened]:
        with about(text):
            task_id = await resolve_id(opened, text)
            return task_id, await opened.hasten(task_id)

    task_id, done = with_store(store, hasten)
    if done is not Hastened.DUE:
        raise SystemExit(f"perdure: {ids.abbreviated(task_id)} is left as it is: {_WHY_NOT[done]}")
    return {"task": task_id, "outcome": "due", "new": None}


def order_anew(store: str, text: str, *, max_attempts: int, timeout_ms: int | None) -> Plain:
    """Order what is over anew, as a task of its own; once only, however many ask.

    `max_attempts`, `timeout_ms`: of the new task. They belong to the run, which is gone with the end of the old one.

    Raises:
        SystemExit: it is not over, or can't be read; one line says why.
    """

    async def act(opened: Store) -> Plain:
        with about(text):
            found = await opened.inspect(await resolve_id(opened, text))
        if not found.task.status.terminal:
            raise Refused(f"{ids.abbreviated(found.task.id)} is not over: it is {found.task.status}")
        new = _anew(found, max_attempts, timeout_ms)
        made = await opened.create(new)
        return {"task": found.task.id, "outcome": "new" if made.id == new.id else "before", "new": made.id}

    return with_store(store, act, contents=True)


def _anew(found: Inspection, max_attempts: int, timeout_ms: int | None) -> NewTask:
    """The same once more. What is over does not change, so its id is a key that all who ask know."""
    task = found.task
    again = f"{_AGAIN}{task.id}"
    return NewTask(
        ids.mint(secrets.token_bytes),
        task.owner,
        found.operation,
        ttl_ms=task.ttl_ms,
        keep_ms=task.keep_ms,
        poll_ms=task.poll_ms,
        max_attempts=max_attempts,
        timeout_ms=timeout_ms,
        key=again,
        digest=again,
    )


# -- purging -----------------------------------------------------------------------------------------------------------


def purge(store: str, which: Which, tombstone_ms: int) -> int:
    """Delete the tasks that are meant, as far as they are over (the store's verb is `discard`); how many."""

    async def act(opened: Store) -> int:
        purged = 0
        async for tasks in walk(opened, which):
            for start in range(0, len(tasks), _BATCH):
                batch = [each.id for each in tasks[start : start + _BATCH]]
                purged += await opened.discard(batch, tombstone_ms=tombstone_ms)
        return purged

    return with_store(store, act)
