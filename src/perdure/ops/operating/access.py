"""A store, opened for as long as one command needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId, PerdureError, TaskNotFound
from perdure.domain.operating import Listed, Which
from perdure.ops import discretion, keys, stores
from perdure.ops.text import cleaned
from perdure.store.base import Store

__all__ = ["Meant", "Refused", "about", "listed_as", "resolve_id", "walk", "with_store"]

T = TypeVar("T")

_LOOK: Final = "perdure tasks ls shows which there are"

PART: Final = 1_000
"""Tasks that are looked at in one read."""


@dataclass(frozen=True, slots=True)
class Meant(Which):
    """Which tasks are meant, perhaps only those of one `handler`, so of one version of a tool."""

    handler: str | None = None


class Refused(PerdureError):
    """What was asked for can't be done; one line says why."""


def with_store(store: str | Store, act: Callable[[Store], Awaitable[T]], *, contents: bool = False) -> T:
    """What `act` makes of the store. Without `contents` its keys are not needed: what is sealed is not shown then.

    Raises:
        SystemExit: it can't be used, or what was asked for can't be done; one line says why.
    """

    async def once() -> T:
        if isinstance(store, str):
            stores.require(store)
        opened = _open(store, contents=contents) if isinstance(store, str) else store
        try:
            await opened.open()
            return await act(opened)
        finally:
            await opened.close()

    try:
        return anyio.run(once)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


def _open(url: str, *, contents: bool) -> Store:
    ring = keys.from_environment()
    return stores.open_store(url, keys=ring, blind=ring is None and not contents, lenient=True)


async def walk(store: Store, which: Which) -> AsyncIterator[tuple[Listed, ...]]:
    """The tasks that are meant, the newest first, as they are come by."""
    after: int | None = None
    while True:
        part = await store.browse(which, after, PART)
        found = part.tasks
        if isinstance(which, Meant) and which.handler is not None:
            found = tuple(each for each in found if each.handler == which.handler)
        if found:
            yield found
        if part.next is None:
            return
        after = part.next


@contextmanager
def about(text: str) -> Generator[None]:
    """What was typed is told to whoever typed it, if there is no such task."""
    try:
        yield
    except MalformedTaskId:
        raise Refused(f"{_said(text)} is no task id: {_LOOK}") from None
    except TaskNotFound:
        raise Refused(f"There is no task {_said(text)}: {_LOOK}") from None


def _said(text: str) -> str:
    return discretion.hidden(cleaned(text))


async def resolve_id(store: Store, text: str) -> str:
    """The id that was typed, whole or as far as it tells one task from all others. Logs show that much of it.

    Raises:
        MalformedTaskId: it is not how an id begins.
        TaskNotFound: no task's does.
        Refused: those of several do.
    """
    try:
        return ids.parse(text)  # a list would not show it if its row was damaged
    except MalformedTaskId:
        return (await listed_as(store, text)).id


async def listed_as(store: Store, text: str) -> Listed:
    """The task that was typed, as a list shows it.

    Raises:
        MalformedTaskId, TaskNotFound, Refused: as `resolve_id`.
    """
    prefix = ids.beginning(text)
    found = await store.find_by_prefix(prefix, 2)
    if len(found) > 1:
        raise Refused(f"Several ids begin with {prefix}: say more of it")
    if not found:
        raise TaskNotFound
    return found[0]
