"""Sealing a store anew, after which its old keys are needed no more; beside the processes that use it.

Whether they are is a matter of two things, and both are said. What is stored can be looked at. What will be stored is
up to the processes: those that are on record say under which key they seal, and of the others only their operator
knows that they were started anew.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol, cast

import anyio
import click

from perdure.domain.errors import PerdureError, StoreUnavailable
from perdure.domain.model import Session
from perdure.engine.sealers import at_work, described, process_of, sealing_of
from perdure.store.keys import KEYS, KEYS_FILE, KeyRing, new_key
from perdure.store.reseal import START, Mark, Page, Resealing, Table

from . import stores
from .keys import from_environment

__all__ = ["Found", "Shelf", "conclude", "make_key", "passes", "run", "verify", "walk"]

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


class Shelf(Resealing, Protocol):
    """What is needed of a store: its values, and who works on it."""

    async def sessions(self) -> tuple[tuple[Session, bool], ...]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """What a pass came to. Numbers of values as those of a `Page`, of which `named` are the first that can't be opened.

    `others`: the processes on record that store otherwise, in words.
    """

    resealed: int = 0
    left: int = 0
    clear: int = 0
    unreadable: int = 0
    named: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def and_then(self, page: Page) -> Found:
        return replace(
            self,
            resealed=self.resealed + page.resealed,
            left=self.left + page.left,
            clear=self.clear + page.clear,
            unreadable=self.unreadable + len(page.unreadable),
            named=(self.named + page.unreadable)[:_SHOWN],
        )


def make_key() -> None:
    """Print a key for a ring, under an id of today."""
    click.echo(new_key(f"{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(2)}"))


def run(url: str) -> None:
    """Store all that is in a store as it would be stored now, and say what was done.

    Raises:
        SystemExit: the store can't be used, there are no keys, some values can't be opened, or there is no end of
            values under another key, or of processes that write such; one line says so.
    """
    try:
        ring = _ring()
        stores.require(url)
        said = f"stored {_how(ring)}"
        click.echo(f"{stores.described(url)}: all values are to be {said}")
        found = anyio.run(_rekey, url, ring)
        left = stores.scrub(url) if ring.sealing is not None else None
        conclude(found, said, left)
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


def verify(url: str) -> None:
    """Open all that is in a store with the keys that there are, change nothing, and say what does not open.

    Raises:
        SystemExit: the store can't be used, there are no keys, some values can't be opened, or a process on record
            seals under a key that is not there; one line says so.
    """
    try:
        ring = _ring()
        stores.require(url)
        click.echo(f"{stores.described(url)}: all values are opened, and nothing is changed")
        found = anyio.run(_verify, url, ring)
        _refuse(found, "values that can't be opened", "these processes seal under keys that are not here")
        click.echo("all values that there are now open with these keys")
        if found.clear and ring.sealing is not None:
            click.echo(f"values in the clear, of which nobody can tell who stored them: {found.clear}")
    except PerdureError as error:
        raise SystemExit(f"perdure: {error}") from None


def _ring() -> KeyRing:
    ring = from_environment()
    if ring is None:
        raise SystemExit(f"perdure: there are no keys: put them into {KEYS}, or name their file in {KEYS_FILE}")
    return ring


def _how(ring: KeyRing) -> str:
    return "in the clear" if ring.sealing is None else f"under the key {ring.sealing!r}"


async def _rekey(url: str, ring: KeyRing) -> Found:
    store = stores.open_store(url, keys=ring, lenient=True)
    try:
        await store.open()
        return await passes(cast("Shelf", store), ring)
    finally:
        await store.close()


async def _verify(url: str, ring: KeyRing) -> Found:
    store = stores.open_to_verify(url, ring)
    try:
        await store.open()
        found = await walk(cast("Shelf", store), "verified")
        others = [
            session
            for session in at_work(await store.sessions())
            if (sealing := sealing_of(session)) is None or (isinstance(sealing, str) and sealing not in ring.ids)
        ]
        return replace(found, others=tuple(map(_told, others)))
    finally:
        await store.close()


def conclude(last: Found, said: str, left: str | None = None) -> None:
    """Say what the last pass came to: `said` is how values are to be stored, `left` what else there may be of them."""
    _refuse(last, "values that can't be opened and were left as they are", "these processes store values otherwise")
    if last.resealed or last.left:
        raise SystemExit(
            "perdure: some process still stores values otherwise: let all of them have these keys, then do this again"
        )
    click.echo(f"all values that there are now are {said}, and so does every worker on record")
    click.echo(
        "before another key is destroyed, start every process with these keys (servers without a worker are not on "
        "record), take that key away, and see what `perdure rekey --verify` says"
    )
    if left is not None:
        click.echo(f"note: {left}")


def _refuse(found: Found, unreadable: str, others: str) -> None:
    for line in found.named:
        click.echo(line)
    if found.others:
        click.echo(f"{others}: {'; '.join(found.others)}")
    if found.unreadable:
        raise SystemExit(f"perdure: {unreadable}: {found.unreadable}")
    if found.others:
        raise SystemExit("perdure: let all processes have these keys, then do this again")


async def passes(store: Shelf, ring: KeyRing) -> Found:
    """What the last pass came to: nothing, unless there is something wrong."""
    done = Found()
    for number in range(1, _PASSES + 1):
        # Before it: what those on record write later is as it should be, and what others have written before it finds.
        before = await _otherwise(store, ring)
        done = await walk(store, f"pass {number}")
        done = replace(done, others=(*dict.fromkeys(before + await _otherwise(store, ring)),))
        clear = f"; found in the clear, and taken in good faith: {done.clear}" if done.clear and ring.sealing else ""
        click.echo(f"pass {number}: values stored anew: {done.resealed}{clear}")
        if not done.resealed and not done.left:
            break
    return done


async def _otherwise(store: Shelf, ring: KeyRing) -> tuple[str, ...]:
    """The processes on record that do not store values as `ring` does, or don't say how."""
    sealing = False if ring.sealing is None else ring.sealing
    return tuple(_told(session) for session in at_work(await store.sessions()) if sealing_of(session) != sealing)


def _told(session: Session) -> str:
    return f"{process_of(session)} ({described(sealing_of(session))})"


async def walk(store: Resealing, name: str) -> Found:
    """A walk through all tables; `name` is what its lines begin with."""
    mark, found, rows = START, Found(), 0
    while True:
        page = await _page(store, mark)
        found, rows = found.and_then(page), rows + _PAGE
        if page.next is None:
            return found
        if rows % _SAY_EVERY == 0:
            where = "" if page.next.table is Table.TASK else f"{page.next.table.value}, "
            click.echo(f"{name}: at {where}task number {page.next.seq}: values stored anew: {found.resealed}")
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
