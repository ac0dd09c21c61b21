"""What operators look at: who works on a store, what tasks there are, and how far one of them is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Final

from perdure.domain.errors import StoreUnavailable, StoreUnusable, TaskNotFound, Unreadable
from perdure.domain.operating import Count, Listed, Which
from perdure.engine import unclaimed
from perdure.ops import stores
from perdure.store.base import Store

from . import plain, times
from .access import about, resolve_id, walk, with_store
from .contents import contents
from .plain import Plain, Sessions

__all__ = ["export", "listing", "show", "stats", "status"]

COUNTED: Final = 5_000
"""Tasks that are counted in one read."""


def status(store: str | Store) -> Plain:
    """The workers, what there is to run for each handler, what no worker can run, and how many routes of gateways.

    Raises:
        SystemExit: the store can't be used; one line says why. So do all that look.
    """

    async def look(opened: Store) -> Plain:
        sessions, loads = await opened.sessions(), await opened.loads()
        return {
            "store": stores.described(store),
            "workers": [plain.worker(session, lapsed) for session, lapsed in sessions],
            "tools": [plain.load(load) for load in loads],
            "unclaimable": [load.handler for load in unclaimed.unclaimable(loads, sessions)],
            "routes": await _routes(store) if isinstance(store, str) else None,
        }

    return with_store(store, look)


async def _routes(url: str) -> int | None:
    """None: they can't be read, which a status of the tasks need not fail for."""
    routes = stores.open_routes(url)
    try:
        await routes.open()
        return await routes.count()
    except (StoreUnavailable, StoreUnusable):
        return None
    finally:
        await routes.close()


def listing(store: str, which: Which, limit: int) -> Plain:
    """The newest `limit` of the tasks that are meant, and whether there are more."""

    async def look(opened: Store) -> Plain:
        found: list[Listed] = []
        async for tasks in walk(opened, which):
            found += tasks
            if len(found) > limit:
                break
        return {"tasks": [plain.listed(each) for each in found[:limit]], "more": len(found) > limit}

    return with_store(store, look)


def show(store: str, text: str, *, with_contents: bool) -> Plain:
    """One task, by its id or how that begins."""

    async def look(opened: Store) -> Plain:
        sessions = await opened.sessions()
        with about(text):
            return await _shown(opened, await resolve_id(opened, text), sessions, with_contents=with_contents)

    return with_store(store, look, contents=with_contents)


async def _shown(store: Store, task_id: str, sessions: Sessions, *, with_contents: bool) -> Plain:
    found = await store.inspect(task_id)
    shown = plain.inspection(found, sessions, times.now())
    return {**shown, "contents": contents(found)} if with_contents else shown


def stats(store: str) -> Plain:
    """How many tasks there are of each tool in each status, and what waits."""

    async def look(opened: Store) -> Plain:
        counts = [count async for part in _tallied(opened) for count in part]
        return {"store": stores.described(store), "tools": plain.stats(counts, await opened.loads())}

    return with_store(store, look)


async def _tallied(store: Store) -> AsyncIterator[Iterable[Count]]:
    after: int | None = None
    while True:
        part = await store.tally(after, COUNTED)
        yield part.counts
        if part.next is None:
            return
        after = part.next


def export(store: str, which: Which, say: Callable[[Plain], None], *, with_contents: bool) -> int:
    """Say each of the tasks that are meant, the newest first; how many of them could not be read.

    Of one that can't be, there is what a list shows of it, and why.
    """

    async def look(opened: Store) -> int:
        unreadable, sessions = 0, await opened.sessions()
        async for tasks in walk(opened, which):
            for each in tasks:
                try:
                    say(await _shown(opened, each.id, sessions, with_contents=with_contents))
                except TaskNotFound:
                    continue  # it was purged just now
                except Unreadable as error:
                    unreadable += 1
                    say({**plain.listed(each), "unreadable": str(error)})
        return unreadable

    return with_store(store, look, contents=with_contents)
