"""Which tasks the ids on a command line mean, on which servers, and whether the token may go there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.client import Record

from . import book, endpoint
from .desk import Desk
from .endpoint import Endpoint, HttpEndpoint
from .typed import Unfit

__all__ = ["Sought", "check_tokens", "records_sought", "sought", "task_sought"]


@dataclass(frozen=True, slots=True)
class Sought:
    """What an id means. `begun_at`: as of a record. `is_known`: whether it is on record; if so, `is_task`."""

    server: Endpoint
    id: str
    begun_at: float
    is_known: bool
    is_task: bool


def sought(desk: Desk, wanted: str | None, server: Endpoint | None) -> Sought:
    """What is wanted; the newest that is open, if nothing is said. The journal need not know it on a server that is.

    Raises:
        Unfit: there is none, or there are several.
    """
    records = desk.journal.records(None if server is None else server.name)
    if wanted is None:
        return _on_record(book.newest_open(records, desk.journal))
    try:
        return _on_record(book.find(records, wanted))
    except Unfit:
        if server is None:
            raise
        return Sought(server, wanted, time.time(), is_known=False, is_task=True)


def _on_record(record: Record) -> Sought:
    server, is_task = endpoint.parse_name(record.server), record.task_id is not None
    return Sought(server, book.identity(record), record.begun_at, is_known=True, is_task=is_task)


def task_sought(desk: Desk, wanted: str, server: Endpoint | None) -> Sought:
    """The same, if it is known to be a task: for commands that must not make a call again.

    Raises:
        Unfit: as `sought`, or it is no task.
    """
    found = sought(desk, wanted, server)
    if not found.is_task:
        raise _no_task(desk, found.id)
    return found


def _no_task(desk: Desk, id: str) -> Unfit:
    return Unfit(
        f"{id} is a call, and nobody knows whether there is a task of it: {desk.again(id)} sees to that, "
        f"or {desk.again(id, 'forget')} strikes it off the list"
    )


def records_sought(desk: Desk, wanted: Sequence[str]) -> list[Record]:
    """The records of these ids; all tasks that are open, if nothing is said.

    Raises:
        Unfit: as `task_sought`.
    """
    records = desk.journal.records()
    if wanted:
        named = [record for each in dict.fromkeys(wanted) for record in book.find_all(records, each)]
        for each in named:
            if each.task_id is None:
                raise _no_task(desk, each.key)
        return list({each.number: each for each in named}.values())
    found = [each for each in records if each.status is None and each.task_id is not None]
    found = found or [each for each in records if each.status == "lost"]
    if not found:
        raise Unfit("the journal has no task that is open")
    return found


def check_tokens(desk: Desk, servers: Sequence[Endpoint]) -> None:
    """A token is for one server. Which one, nobody said; so there must be one only, and one that may hear it.

    Raises:
        Unfit: it must not go there.
    """
    pages = [each for each in servers if isinstance(each, HttpEndpoint)]
    origins = {each.origin for each in pages}
    if desk.access.token is not None and len(origins) > 1:
        raise Unfit(f"one token must not go to several servers ({', '.join(sorted(origins))}): take one at a time")
    for each in pages:
        desk.access.headers(each)
