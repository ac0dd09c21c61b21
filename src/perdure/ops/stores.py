"""Which store a URL means, and how a store is called where people read it."""

from __future__ import annotations

import re

from perdure.domain.errors import StoreUnusable
from perdure.store.base import Store
from perdure.store.clock import Clock
from perdure.store.sqlite import SQLiteStore
from perdure.store.sqlite.schema import path_of

__all__ = ["described", "open_store", "require"]

_SQLITE = "sqlite:"
_CREDENTIALS = re.compile(r"(?<=://)[^/]*@")


def open_store(url: str, clock: Clock | None = None) -> Store:
    """The store that `url` names, not opened yet. `clock` takes the place of the machine's.

    Raises:
        StoreUnusable: no store goes by such a URL.
    """
    if url.startswith(_SQLITE):
        return SQLiteStore(url, clock)
    raise StoreUnusable(f"{described(url)!r} names no store: write sqlite:///tasks.db")


def require(url: str) -> None:
    """That there is something to look at: opening a file that is not there would make it.

    Raises:
        StoreUnusable: there is no such store.
    """
    if url.startswith(_SQLITE) and not (path := path_of(url)).exists():
        raise StoreUnusable(f"there is no file {path}")


def described(store: str | Store) -> str:
    """A store as it may be shown to anybody: its URL without what only its owner may know, or its class."""
    if not isinstance(store, str):
        return type(store).__name__
    return _CREDENTIALS.sub("", store).partition("?")[0]
