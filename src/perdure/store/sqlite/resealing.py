"""Sealing what is stored anew, a page at a time (`perdure.store.reseal`; see `shared` for how a verb works).

A transaction has the file to itself, so what was read is what is replaced. What it replaces is overwritten with zeros,
which SQLite otherwise leaves for whoever needs the room next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

from perdure.domain.model import Owner
from perdure.store.reseal import Mark, Page, Table, ends, fitting, renewed

from . import sql
from .writer import Transaction

__all__ = ["reseal"]

_STATEMENTS: Final = {
    Table.TASK: (sql.RESEAL_TASK, sql.RESEALED_TASK),
    Table.INPUT: (sql.RESEAL_INPUT, sql.RESEALED_INPUT),
    Table.ENTRY: (sql.RESEAL_ENTRY, sql.RESEALED_ENTRY),
    Table.EVENT: (sql.RESEAL_EVENT, sql.RESEALED_EVENT),
}


def reseal(tx: Transaction, after: Mark, limit: int) -> Page:
    look, write = _STATEMENTS[after.table]
    tx.run("PRAGMA secure_delete = ON")
    found, full = _page(tx, look, after, limit)
    count, unreadable = 0, list[str]()
    for seq, key, id_, tenant, principal, *values in found:
        row = renewed(after.table, Owner(tenant, principal), id_, key, values, tx.codec)
        if row.count:
            tx.run(write, *row.values, seq, key)
        count += row.count
        unreadable += row.unreadable
    last = (found[-1][0], found[-1][1]) if found else None
    return Page(ends(after, last, full), count, unreadable=tuple(unreadable))


def _page(tx: Transaction, look: str, after: Mark, limit: int) -> tuple[list[Any], bool]:
    """The rows of a page, and whether there may be more; no further row is fetched once those weigh enough."""
    found: list[Any] = []

    def weighed(rows: Iterable[Any]) -> Iterator[int]:
        for row in rows:
            found.append(row)
            yield sum(len(str(value)) for value in row[5:])

    with closing(tx.connection.execute(look, (after.seq, after.key, limit))) as cursor:
        fitting(weighed(cursor))
        more = len(found) == limit or cursor.fetchone() is not None
    return found, more
