"""A store, opened for as long as one command needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import anyio

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId, PerdureError, TaskNotFound
from perdure.domain.operating import Listed, Which
from perdure.ops import keys, stores
from perdure.store.base import Store

__all__ = ["Refused", "listed_as", "resolve_id", "walk", "with_store"]

T = TypeVar("T")

PART: Final = 1_000
"""Tasks that are looked at in one read."""


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
        if part.tasks:
            yield part.tasks
        if part.next is None:
            return
        after = part.next


async def resolve_id(store: Store, text: str) -> str:
    """The id that was typed, whole or as far as it tells one task from all others. Logs show that much of it.

    Raises:
        MalformedTaskId: it is not how an id begins.
        TaskNotFound: no task's does.
        Refused: those of several do.
    """
    try:
        return ids.parse(text)
    except MalformedTaskId:
        return (await _only(store, ids.beginning(text))).id


async def listed_as(store: Store, text: str) -> Listed:
    """The task that was typed, as a list shows it.

    Raises:
        MalformedTaskId, TaskNotFound, Refused: as `resolve_id`.
    """
    return await _only(store, ids.beginning(text))


async def _only(store: Store, prefix: str) -> Listed:
    found = await store.find_by_prefix(prefix, 2)
    if len(found) > 1:
        raise Refused(f"Several ids begin with {prefix}: say more of it")
    if not found:
        raise TaskNotFound
    return found[0]
