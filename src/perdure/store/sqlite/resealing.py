"""Sealing what is stored anew, a page at a time (`perdure.store.reseal`; see `shared` for how a verb works).

A transaction has the file to itself, so what was read is what is replaced. What it replaces is overwritten with zeros,
which SQLite otherwise leaves for whoever needs the room next.
"""

from __future__ import annotations

from typing import Final

from perdure.domain.model import Owner
from perdure.store.reseal import Mark, Page, Table, ends, renewed

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
    found = tx.all(look, after.seq, after.key, limit)
    count, unreadable = 0, list[str]()
    for seq, key, id_, tenant, principal, *values in found:
        row = renewed(after.table, Owner(tenant, principal), id_, key, values, tx.codec)
        if row.count:
            tx.run(write, *row.values, seq, key)
        count += row.count
        unreadable += row.unreadable
    last = (found[-1][0], found[-1][1]) if found else None
    return Page(ends(after, last, len(found) == limit), count, unreadable=tuple(unreadable))
