"""Sealing a store anew, after which its old keys are needed no more; beside the processes that use it."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Final, cast

import anyio
import click

from perdure.domain.errors import PerdureError, StoreUnavailable
from perdure.store.keys import KEYS, KEYS_FILE, KeyRing, new_key
from perdure.store.reseal import START, Mark, Page, Resealing, Table

from . import stores
from .keys import from_environment

__all__ = ["conclude", "make_key", "passes", "run", "walk"]

_PAGE: Final = 100
"""Rows in a page. Each of their values may be some MiB."""
_PASSES: Final = 5
"""After the first, a pass only finds what was in use before. What is found after that, somebody keeps on writing."""
_SAY_EVERY: Final = 10_000
"""Rows between lines that tell how far it is."""
_TRIES: Final = 60
_PAUSE: Final = 1.0
"""How often a page is tried, and seconds in between, while the store can't be used."""
_SHOWN: Final = 20
"""How many of the values that can't be opened are named."""


def make_key() -> None:
    """Print a key for a ring, under an id of today."""
    click.echo(new_key(f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(2)}"))


def run(url: str) -> None:
    """Store all that is in a store as it would be stored now, and say what was done.

    Raises:
        SystemExit: the store can't be used, there are no keys, some values can't be opened, or there is no end of
            values under another key; one line says so.
    """
    try:
        ring = from_environment()
        if ring is None:
            raise SystemExit(f"perdure: there are no keys: put them into {KEYS}, or name their file in {KEYS_FILE}")
        stores.require(url)
        said = "in the clear" if ring.sealing is None else f"under the key {ring.sealing!r}"
        click.echo(f"{stores.described(url)}: all values are to be stored {said}")
        conclude(anyio.run(_rekey, url, ring), said)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


async def _rekey(url: str, ring: KeyRing) -> Page:
    store = stores.open_store(url, keys=ring)
    try:
        await store.open()
        return await passes(cast("Resealing", store))
    finally:
        await store.close()


def conclude(last: Page, said: str) -> None:
    for line in last.unreadable[:_SHOWN]:
        click.echo(f"can't be opened: {line}")
    if last.unreadable:
        raise SystemExit(f"perdure: values that can't be opened and were left as they are: {len(last.unreadable)}")
    if last.resealed or last.left:
        raise SystemExit(
            "perdure: some process still stores values otherwise: let all of them have these keys, then do this again"
        )
    click.echo(f"all values are stored {said}; no other key is needed any more")


async def passes(store: Resealing) -> Page:
    """What the last pass came to: nothing, unless there is something wrong."""
    done = Page(None)
    for number in range(1, _PASSES + 1):
        done = await walk(store, number)
        click.echo(f"pass {number}: values stored anew: {done.resealed}")
        if not done.resealed and not done.left:
            break
    return done


async def walk(store: Resealing, number: int) -> Page:
    """A walk through all tables, as one page."""
    mark, resealed, left, rows = START, 0, 0, 0
    unreadable: list[str] = []
    while True:
        page = await _page(store, mark)
        resealed, left, rows = resealed + page.resealed, left + page.left, rows + _PAGE
        unreadable += page.unreadable
        if page.next is None:
            return Page(None, resealed, left, tuple(unreadable))
        if rows % _SAY_EVERY == 0:
            where = "" if page.next.table is Table.TASK else f"{page.next.table.value}, "
            click.echo(f"pass {number}: at {where}task number {page.next.seq}: values stored anew: {resealed}")
        mark = page.next


async def _page(store: Resealing, after: Mark) -> Page:
    """A page, whatever it takes within reason. One that took too long is tried again as a smaller one."""
    limit = _PAGE
    for _ in range(_TRIES):
        try:
            return await store.reseal(after, limit)
        except StoreUnavailable:
            limit = max(1, limit // 4)
            await anyio.sleep(_PAUSE)
    return await store.reseal(after, limit)
