"""What only reads: tasks found by their ids, keys and owners, what they have on record, and what there is to run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import asyncpg

from perdure.domain import inputs
from perdure.domain.errors import IdempotencyKeyReused, TaskExpired, TaskNotFound, Unreadable
from perdure.domain.inputs import Questions
from perdure.domain.journal import Entry, Journal
from perdure.domain.model import InputRequest, Owner, Session, Task
from perdure.domain.timeline import Inspection, Load
from perdure.store import rows
from perdure.store.sealing import Codec

from . import sql
from .access import Access
from .jobs import Done

__all__ = [
    "NEWEST",
    "Sought",
    "backlog",
    "by_id",
    "columns",
    "expired",
    "external_work",
    "find",
    "grouped",
    "inspect",
    "journals",
    "loads",
    "open_questions",
    "page",
    "recall",
    "rows_of",
    "sessions",
    "unfinished",
    "with_questions",
]

NEWEST: Final = 2**63 - 1
"""No task's number is as large."""


@dataclass(frozen=True, slots=True)
class Sought:
    """A task that its owner asks for; None: somebody who need not be its owner."""

    owner: Owner | None
    id: str


def columns(sought: Collection[Sought]) -> tuple[list[str], list[str | None], list[str | None]]:
    """As `sql` takes them: the ids, the tenants, the principals."""
    owners = [each.owner for each in sought]
    return (
        [each.id for each in sought],
        [None if owner is None else owner.tenant for owner in owners],
        [None if owner is None else owner.principal for owner in owners],
    )


async def find(access: Access, sought: Sequence[Sought]) -> list[Done]:
    """The tasks as they are now, with their outstanding inputs; an error for each that is not there for its owner."""
    # Several may ask for one task, and only one of them be its owner.
    found = {row["id"]: row for row in await rows_of(access, sought)}
    mine = [found.get(each.id) for each in sought]
    mine = [
        row if row and Owner(row["tenant"], row["principal"]) == each.owner else None
        for each, row in zip(sought, mine, strict=True)
    ]
    missing = [each for each, row in zip(sought, mine, strict=True) if row is None]
    buried = await expired(access, missing)
    return [
        _read(row, access) if row is not None else Done(error=TaskExpired() if each in buried else TaskNotFound())
        for each, row in zip(sought, mine, strict=True)
    ]


def _read(row: Any, access: Access) -> Done:
    """A task; or that it can't be read, which is no concern of the others that are sought."""
    try:
        return Done(with_questions(row, access.codec))
    except Unreadable as error:
        return Done(error=error)


async def expired(access: Access, missing: Collection[Sought]) -> set[Sought]:
    """Those that were this owner's and were purged a while ago."""
    if not missing:
        return set()
    graves = await access.connection.fetch(sql.TOMBSTONE_FIND, access.clock, *columns(missing))
    return {Sought(Owner(tenant, principal), id_) for id_, tenant, principal in graves} & set(missing)


async def rows_of(access: Access, sought: Collection[Sought]) -> list[asyncpg.Record]:
    """The rows of tasks, as `with_questions` reads them, if one of those who seek them may have them."""
    return await access.connection.fetch(sql.TASK_FIND, *columns(sought)) if sought else []


async def by_id(access: Access, task_id: str) -> Task | None:
    """A task, whoever's it is."""
    found = await rows_of(access, [Sought(None, task_id)])
    return with_questions(found[0], access.codec) if found else None


async def recall(access: Access, owner: Owner, key: str, digest: str | None) -> Task | None:
    row = await access.connection.fetchrow(sql.TASK_RECALL, owner.tenant, owner.principal, key)
    if row is None:
        return None
    task = with_questions(row[1:], access.codec)
    if rows.digest(row[0], task, access.codec) != digest:
        raise IdempotencyKeyReused
    return task


async def page(access: Access, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
    before = NEWEST if after is None else after
    found = await access.connection.fetch(sql.TASK_PAGE, owner.tenant, owner.principal, before, limit)
    return tuple(rows.readable(found, lambda row: rows.owned(owner, row, access.codec)))


async def open_questions(access: Access, sought: Sought) -> tuple[InputRequest, ...]:
    """No snapshot: what is answered between the two reads is no longer open, and what was open is answered in vain."""
    (found,) = await find(access, [sought])
    if found.error is not None:
        raise found.error
    task: Task = found.value
    if task.status.terminal:
        return ()
    questions = grouped(await access.connection.fetch(sql.INPUT_ALL, [task.seq]))
    return inputs.outstanding(rows.questions(questions.get(task.seq, ()), task, access.codec))


async def journals(access: Access, tasks: Sequence[Task]) -> list[Done]:
    """What tasks have on record; of each whether it can be read.

    The entries first, so that a question which one of them led to is not missed; what comes later is news.
    """
    seqs = [task.seq for task in tasks]
    entries = grouped(await access.connection.fetch(sql.ENTRY_ALL, seqs))
    questions = grouped(await access.connection.fetch(sql.INPUT_ALL, seqs))
    return [_journal(task, entries.get(task.seq, ()), questions.get(task.seq, ()), access.codec) for task in tasks]


def _journal(of: Task, entries: Iterable[Any], questions: Iterable[Any], codec: Codec) -> Done:
    try:
        return Done(Journal(rows.entries(entries, of, codec), rows.questions(questions, of, codec)))
    except Unreadable as error:
        return Done(error=error)


async def external_work(
    access: Access, named: Collection[tuple[str, str]]
) -> dict[tuple[str, str], Entry | Unreadable]:
    """The external work of tasks by their ids and its places, whoever's they are; or that it can't be read."""
    ids, places = [task_id for task_id, _ in named], [place for _, place in named]
    found = await access.connection.fetch(sql.ENTRY_NAMED, ids, places) if named else []
    return {(row[0], row[3]): _work(row, access.codec) for row in found}


def _work(row: Any, codec: Codec) -> Entry | Unreadable:
    task_id, tenant, principal, *entry = row
    try:
        return rows.entry(entry, rows.Whose(Owner(tenant, principal), task_id), codec)
    except Unreadable as error:
        return error


async def sessions(access: Access) -> tuple[tuple[Session, bool], ...]:
    found = await access.connection.fetch(sql.SESSION_ALL, access.clock)
    return tuple((rows.session(*session), lapsed) for *session, lapsed in found)


# -- what operators ask ------------------------------------------------------------------------------------------------


async def inspect(access: Access, task_id: str) -> Inspection:
    task = await by_id(access, task_id)
    if task is None:
        raise TaskNotFound
    ordered = await access.connection.fetchrow(sql.TASK_OPERATION, task.seq)
    operation = rows.operation(ordered, task, access.codec)
    run = await access.connection.fetchrow(sql.RUN_STATE, task.seq)
    run_state = None if run is None else rows.run_state(run)
    events = rows.events(await access.connection.fetch(sql.EVENT_ALL, task.seq), task, access.codec)
    (journal,) = await journals(access, [task])
    if journal.error is not None:
        raise journal.error
    return Inspection(task, operation, run_state, journal.value, events)


async def loads(access: Access) -> tuple[Load, ...]:
    found = await access.connection.fetch(sql.RUN_QUEUES, access.clock)
    return tuple(rows.load(row[1:], row[0]) for row in found)


async def backlog(access: Access, most: int, tenant: str | None) -> dict[str, int]:
    if tenant is None:
        found = await access.connection.fetch(sql.RUN_BACKLOG, access.clock, most)
        return {row[0]: row[1] for row in found}
    count = await access.connection.fetchval(sql.RUN_BACKLOG_OF, access.clock, most, tenant)
    return {tenant: count} if count else {}


async def unfinished(access: Access, owner: Owner, most: int) -> int:
    return await access.connection.fetchval(sql.TASK_UNFINISHED, owner.tenant, owner.principal, most)


# -- rows --------------------------------------------------------------------------------------------------------------


def grouped(found: Iterable[asyncpg.Record]) -> dict[int, list[Any]]:
    """The rows of each task, without its number, which comes first in them."""
    by_task: dict[int, list[Any]] = {}
    for row in found:
        by_task.setdefault(row[0], []).append(row[1:])
    return by_task


def with_questions(row: Any, codec: Codec) -> Task:
    """The task in a row of its questions, if it waits for any, and `rows.TASK`."""
    task = rows.task(row[1:], codec)
    if row[0] is None:
        return task
    questions: Questions = rows.questions(json.loads(row[0]), task, codec)
    return replace(task, inputs=inputs.awaited(questions))
