"""Sealing what is stored anew: after keys were changed, or for a store that was not sealed before.

A pass walks through the tables in the order of their keys, a page of rows at a time; a page is one call, which reads,
decides here which values are not as they would be stored now, and replaces those. So it is bounded, may be broken off
anywhere, and does nothing where nothing is to do. Any number of passes may run at once, beside servers that use the
store: who replaces a value makes sure that it is still the one that was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from perdure.domain import ids
from perdure.domain.errors import Unreadable
from perdure.domain.model import Owner
from perdure.domain.timeline import EventKind

from .codec import UNREADABLE, mended, sound
from .keys import MARK
from .sealing import NOTES, Codec

__all__ = ["START", "Mark", "Page", "Resealing", "Table", "ends", "fitting", "renewed"]


class Table(Enum):
    """Where there are values, in the order of a pass. The value is the table's name."""

    TASK = "task"
    INPUT = "input"
    ENTRY = "entry"
    EVENT = "event"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a pass has come: after the row of the task `seq` with that key (a question's, a place, a position)."""

    table: Table
    seq: int = 0
    key: str | int = ""


START: Final = Mark(Table.TASK)
"""Before everything."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one call did. `next`: where to go on, None at the end of a pass. `resealed`: how many values.

    `left`: how many were in use just now, and are for another pass. `unreadable`: the values that can't be opened, in
    words. `clear`: how many were found in the clear.
    """

    next: Mark | None
    resealed: int = 0
    left: int = 0
    unreadable: tuple[str, ...] = ()
    clear: int = 0


class Resealing(Protocol):
    """What a store has whose values may be sealed."""

    async def reseal(self, after: Mark, limit: int) -> Page:
        """Store up to `limit` rows after that mark as they would be stored now; fewer of them where they are large.

        A value that can't be opened is left as it is. Safe to call at any time, any number of times.

        Raises:
            StoreUnavailable: as every verb; the page is begun anew by the same call.
        """
        ...


_FULL: Final = 8 * 1024 * 1024
"""Bytes, or characters, after which a page takes no further row. All of it is in memory, and in one transaction."""


def fitting(sizes: Iterable[int]) -> int:
    """How many of the rows of those sizes, which come in order, make a page. Asks for no size that it need not know."""
    count = total = 0
    for size in sizes:
        count, total = count + 1, total + size
        if total >= _FULL:
            break
    return count


def ends(after: Mark, last: tuple[int, str | int] | None, full: bool) -> Mark | None:
    """Where to go on after a page whose last row was `last`; `full`: there may be more in that table."""
    if full and last is not None:
        return Mark(after.table, *last)
    tables = [*Table]
    rest = tables[tables.index(after.table) + 1 :]
    return Mark(rest[0], key=-1 if rest[0] is Table.EVENT else "") if rest else None


def renewed(table: Table, owner: Owner, id_: str, key: Any, values: Sequence[str | None], codec: Codec) -> Renewed:
    """A row's values as they would be stored now, in the order of the statements."""
    renewal = Renewed(owner, id_, codec, [*values])
    if renewal.is_damaged(key):
        return renewal
    match table:
        case Table.TASK:
            for at, name in enumerate(("params", "result", "error")):
                renewal.value(at, name)
            renewal.words(3, "message")
            renewal.words(4, "digest")
        case Table.INPUT:
            renewal.value(0, "request", key)
            renewal.value(1, "response", key)
        case Table.ENTRY:
            renewal.value(0, "entry", key)
        case _:
            if (kind := EventKind(values[1])) in NOTES:
                renewal.words(0, "event", kind.value)
    return renewal


@dataclass(slots=True)
class Renewed:
    """A row's values, of which `count` are new, and `clear` were in the clear; and which can't be opened."""

    owner: Owner
    id: str
    codec: Codec
    values: list[str | None]
    count: int = 0
    clear: int = 0
    unreadable: tuple[str, ...] = ()

    def is_damaged(self, key: Any) -> bool:
        """Whether there is a text in the row that is no UTF-8. No statement could put that back, so all of it stays."""
        try:
            for text in (self.id, self.owner.tenant, self.owner.principal, key, *self.values):
                sound(str(text))
        except UNREADABLE as error:
            shown = ids.abbreviated(mended(self.id))
            self.unreadable += (f"a row of task {shown} was damaged: {type(error).__name__}",)
            return True
        return False

    def value(self, at: int, *what: str) -> None:
        """Renew the JSON at that position."""
        self._renew(at, self.codec.resealed, what)

    def words(self, at: int, *what: str) -> None:
        """Renew the words at that position."""
        self._renew(at, self.codec.resealed_words, what)

    def _renew(self, at: int, renew: Any, what: tuple[str, ...]) -> None:
        before = self.values[at]
        if before is None:
            return
        self.clear += not before.startswith(MARK)
        try:
            self.values[at] = renew(before, self.owner, self.id, *what)
        except Unreadable as error:
            self.unreadable += (error.of(f"{' '.join(what)} of task {ids.abbreviated(self.id)}"),)
        else:
            self.count += self.values[at] != before
