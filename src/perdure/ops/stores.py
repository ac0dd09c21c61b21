"""Which store a URL means, and how a store is called where people read it."""

from __future__ import annotations

import re
import shlex
from types import ModuleType

from perdure.domain.errors import StoreUnusable
from perdure.store.base import Store
from perdure.store.clock import Clock
from perdure.store.keys import KeyRing
from perdure.store.memory import MemoryStore
from perdure.store.migrate import Upgrade
from perdure.store.routes import Routes
from perdure.store.sealing import BLIND, Codec, codec_for, verifying
from perdure.store.sqlite import SQLiteRoutes, SQLiteStore, resealing, schema
from perdure.store.sqlite.upgrade import SQLiteUpgrade

__all__ = [
    "described",
    "named_store",
    "open_routes",
    "open_store",
    "open_to_verify",
    "require",
    "scrub",
    "spans_machines",
    "upgrade_of",
]

_SQLITE = "sqlite:"
_POSTGRES = ("postgresql:", "postgres:")
_SCHEME = re.compile(r"[\w+.-]*://")
_PLACE = re.compile(r"(?:[\w.,-]|\[[0-9A-Fa-f:]+\]|:\d+(?=[,/]|$))*(?:/[\w.%/-]*)?")
"""Hosts and ports, and the name of a database or a file."""


def open_store(
    url: str, clock: Clock | None = None, *, keys: KeyRing | None = None, blind: bool = False, lenient: bool = False
) -> Store:
    """The store that `url` names, not opened yet. `clock` takes the place of the machine's.

    `keys`: what its values are sealed under. `blind`: what is sealed is passed over, for whoever only looks how tasks
    stand. `lenient`: it is opened though keys are lacking, for whoever looks how far they go.

    Raises:
        StoreUnusable: no store goes by such a URL.
    """
    return _with(BLIND if blind else codec_for(keys, lenient=lenient), url, clock)


def open_routes(url: str, clock: Clock | None = None) -> Routes:
    """The routes of a gateway in the store that `url` names, not opened yet. `clock` takes the place of the machine's.

    Takes no keys: a route holds nothing that is sealed (`store.routes`).

    Raises:
        StoreUnusable: as `open_store`.
    """
    if url.startswith(_SQLITE):
        return SQLiteRoutes(url, clock)
    if url.startswith(_POSTGRES):
        return _postgres().PostgresRoutes(url, clock)
    raise _nameless(url)


def open_to_verify(url: str, keys: KeyRing) -> Store:
    """The same, whose `reseal` opens everything and changes nothing."""
    return _with(verifying(keys), url, None)


def _with(codec: Codec, url: str, clock: Clock | None) -> Store:
    if url.startswith(_SQLITE):
        return SQLiteStore(url, clock, codec=codec)
    if url.startswith(_POSTGRES):
        return _postgres().PostgresStore(url, clock, codec=codec)
    raise _nameless(url)


def named_store(url: str, keys: KeyRing | None = None) -> Store:
    """The same, and where no store goes by that URL, one that says so when it is opened.

    A program names its store while it is loaded. An error there would come with a trace, in which Python shows the line
    of source that names it, and whatever is in that URL.
    """
    try:
        return open_store(url, keys=keys)
    except StoreUnusable as error:
        return _Refusal(error)


class _Refusal(MemoryStore):
    """What stands where a store should. Nothing gets past its being opened, so nothing is ever kept in it."""

    def __init__(self, error: StoreUnusable) -> None:
        super().__init__()
        self._said = str(error)

    async def open(self) -> None:
        raise StoreUnusable(self._said)


def upgrade_of(url: str) -> Upgrade:
    """The way to bring the schema of the store that `url` names up to date.

    Raises:
        StoreUnusable: as `open_store`.
    """
    if url.startswith(_SQLITE):
        return SQLiteUpgrade(url)
    if url.startswith(_POSTGRES):
        return _postgres().PostgresUpgrade(url)
    raise _nameless(url)


def _nameless(url: str) -> StoreUnusable:
    return StoreUnusable(
        f"{described(url)!r} names no store: write sqlite:///tasks.db, or postgresql://user@host/database"
    )


def _postgres() -> ModuleType:
    """The PostgreSQL backend, whose driver is an extra."""
    try:
        from perdure.store import postgres
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUnusable("PostgreSQL needs a driver: pip install 'perdure[postgres]'") from None
    return postgres


def require(url: str) -> None:
    """That there is something to look at, as this release knows it.

    Opening a file that is not there would make it, and one of an older release would be brought up to date: no look at
    tasks may be what shuts out the processes that still run that release. A shared database is never changed by that.

    Raises:
        StoreUnusable: there is no such store, or its schema is older.
    """
    if not url.startswith(_SQLITE):
        return
    path = schema.path_of(url)
    if not path.exists():
        raise StoreUnusable(f"there is no file {path}")
    if schema.lacking(path):
        raise StoreUnusable(
            f"{path} has the schema of an older release: stop what still runs that one, then "
            f"perdure migrate {shlex.quote(url)}"
        )


def scrub(url: str) -> str | None:
    """Have values as they were stored before be gone, beside whoever uses the store; what may be left, in words.

    Raises:
        StoreUnusable: the file can't be used.
    """
    if url.startswith(_SQLITE):
        return resealing.scrub(schema.path_of(url))
    return (
        "values as they were stored before may be left in the files of the tables until a VACUUM FULL, and in the "
        "write-ahead log"
    )


def spans_machines(url: str) -> bool:
    """Whether servers on several machines may share the store that `url` names."""
    return url.startswith(_POSTGRES)


def described(store: str | Store) -> str:
    """A store as it may be shown to anybody: its URL without what only its owner may know, or its class."""
    if not isinstance(store, str):
        return type(store).__name__
    if store.startswith(f"{_SQLITE}///"):
        return store.partition("?")[0]
    # A password that is not written as it should be may hold anything: so nothing is shown from before the last @, and
    # of the rest only what looks like a host and a name.
    scheme = _SCHEME.match(store)
    named = scheme[0] if scheme else ""
    place = store.removeprefix(named).rpartition("@")[2].partition("?")[0]
    return named + (place if _PLACE.fullmatch(place) else "…")
