"""Sealing what is stored anew, a page at a time (`perdure.store.reseal`).

A page is read without a lock, and most often there is nothing to do. What is to be replaced is then locked as far as
nobody is using it; what somebody is, waits for another pass. A statement replaces only what still is as it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.domain.model import Owner
from perdure.store.reseal import Mark, Page, Table, ends, fitting, renewed

from . import sql_resealing as sql
from .access import Access
from .jobs import Done

__all__ = ["reseal", "sample"]

_STATEMENTS: Final = {
    Table.TASK: (sql.SIZES_TASK, sql.RESEAL_TASK, sql.RESEALED_TASK),
    Table.INPUT: (sql.SIZES_INPUT, sql.RESEAL_INPUT, sql.RESEALED_INPUT),
    Table.ENTRY: (sql.SIZES_ENTRY, sql.RESEAL_ENTRY, sql.RESEALED_ENTRY),
    Table.EVENT: (sql.SIZES_EVENT, sql.RESEAL_EVENT, sql.RESEALED_EVENT),
}


@dataclass(frozen=True, slots=True)
class _Row:
    """What is to be replaced: the columns of the statement, which begin with task and key; and how many are new."""

    columns: tuple[Any, ...]
    count: int

    @property
    def key(self) -> tuple[Any, ...]:
        return self.columns[:2]


async def sample(access: Access) -> Sequence[Any]:
    """Some of the tasks, which tell under which keys values are sealed (`sealing.check`)."""
    async with access.reading():
        return await access.connection.fetch(sql.TASK_SAMPLE)


async def reseal(access: Access, after: Mark, limit: int) -> Done:
    sizes, look, write = _STATEMENTS[after.table]
    key = () if after.table is Table.TASK else (after.key,)
    async with access.reading():
        weights = await access.connection.fetch(sizes, after.seq, limit, *key)
        count = fitting(size for (size,) in weights)
        found = await access.connection.fetch(look, after.seq, count, *key)
        seqs = [*{row[0] for row in found}]
        owners = {row[0]: row for row in await access.connection.fetch(sql.RESEAL_OWNERS, seqs)} if seqs else {}
    stale, clear, unreadable = list[_Row](), 0, list[str]()
    for seq, key_, before, *values in found:
        if seq in owners:  # else it was purged in between
            _, id_, tenant, principal = owners[seq]
            row = renewed(after.table, Owner(tenant, principal), id_, key_, values, access.codec)
            clear += row.clear
            unreadable += row.unreadable
            if row.count:
                stale.append(_Row((seq, key_, before, *row.values), row.count))
    written = await _replace(access, write, stale) if stale else 0
    last = (found[-1][0], found[-1][1]) if found else None
    left = sum(row.count for row in stale) - written
    more = len(weights) == limit or len(weights) > count
    return Done(Page(ends(after, last, more), written, left, tuple(unreadable), clear))


async def _replace(access: Access, write: str, stale: Sequence[_Row]) -> int:
    """Replace what nobody else is using, and is as it was read; how many values that were."""
    seqs = [*{row.columns[0] for row in stale}]
    async with access.writing():
        runs = [seq for (seq,) in await access.connection.fetch(sql.RESEAL_RUNS, seqs)]
        mine = {seq for (seq,) in await access.connection.fetch(sql.RESEAL_TASKS, seqs, runs)}
        rows = [row for row in stale if row.columns[0] in mine]
        columns = [[*column] for column in zip(*(row.columns for row in rows), strict=True)]
        written = {(*row,) for row in (await access.connection.fetch(write, *columns) if rows else ())}
    return sum(row.count for row in rows if row.key in written)
