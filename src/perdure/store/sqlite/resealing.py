"""Sealing what is stored anew, a page at a time (`perdure.store.reseal`; see `shared` for how a verb works).

A transaction has the file to itself, so what was read is what is replaced. What it replaces is overwritten with zeros,
which SQLite otherwise leaves for whoever needs the room next. All that is in the log at first: what the file itself
has is as before until the log is moved there (`scrub`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from perdure.domain.model import Owner
from perdure.store.reseal import Mark, Page, Table, ends, fitting, renewed

from . import schema, sql
from .writer import Transaction

__all__ = ["reseal", "scrub"]

_PATIENCE_MS: Final = 5_000
"""How long it is waited for others to let go of the file. Nobody holds it for long who is not stuck."""

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
    count, clear, unreadable = 0, 0, list[str]()
    for seq, key, id_, tenant, principal, *values in found:
        row = renewed(after.table, Owner(tenant, principal), id_, key, values, tx.codec)
        if row.count:
            tx.run(write, *row.values, seq, key)
        count += row.count
        clear += row.clear
        unreadable += row.unreadable
    last = (found[-1][0], found[-1][1]) if found else None
    return Page(ends(after, last, full), count, unreadable=tuple(unreadable), clear=clear)


def scrub(path: Path) -> str | None:
    """Move what is in the log into the file, over what it replaces, and make the log empty; what may be left, in words.

    A connection that only reads may do that. It waits for whoever reads or writes just now, and not for long.

    Raises:
        StoreUnusable: the file can't be used.
    """
    with closing(schema.connect_reader(path)) as connection, schema.explained(path):
        connection.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        (busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if not busy:
        return None
    return (
        f"some process reads {path} just now, so values as they were stored before may still be in it, and in its log "
        f"({path.name}-wal): do this again, or stop all processes"
    )


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
