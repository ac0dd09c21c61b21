"""What `bench.store` needs of a database besides the `Store` protocol, one class for each kind.

A backend makes stores, fills one with tasks that are long over, and measures what lies beneath it: how fast the
database makes one small row durable by itself, and what a claim costs without the disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.quiet import Consumer
from perdure.store.base import Store

__all__ = ["Backend", "Targets"]


@dataclass(frozen=True, slots=True)
class Targets:
    """What is demanded of a database: operations a second, and at how many finished tasks claims have to be quick."""

    creates: float
    claims: float
    finished: tuple[int, ...]


class Backend(Protocol):
    """A database to measure, with its stores in one place."""

    targets: Targets
    without_disk: str
    """How a claim is called that does not wait for the disk."""

    @property
    def server(self) -> Consumer | None:
        """The database's processes, if it has any besides this one."""
        ...

    def describe(self) -> str:
        """Its version and the settings that matter, if the table does not name them anyway."""
        ...

    def store(self, name: str, *, grouped: bool = True) -> Store:
        """The store of that name, not opened yet. Not `grouped`: one transaction for each operation."""
        ...

    def remove(self, name: str) -> None:
        """Remove a closed store, so that what it leaves to do in the background is not in the way of the others."""
        ...

    def fill(self, name: str, finished: int) -> None:
        """Copy the one task in a closed store until there are `finished`."""
        ...

    def claims(
        self, name: str, session_id: str, handler: str
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[float]]]:
        """A call that claims a run and undoes it, without the disk; its value is the seconds of the claim alone."""
        ...

    async def bare_inserts(self, count: int) -> float:
        """Rows a second that the database makes durable without us, one insert a transaction, one after the other."""
        ...
