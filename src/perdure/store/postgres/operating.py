"""What operators ask of tasks that may be anybody's: lists and counts, in parts, and what they do to single ones."""

from __future__ import annotations

from collections.abc import Collection

from perdure.domain.errors import TaskNotFound
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which
from perdure.store import rows, verbs
from perdure.store.records import Record

from . import finding, housekeeping, sql_operating
from .access import Access
from .jobs import Done
from .sheet import Sheet

__all__ = ["browse", "discard", "find_by_prefix", "hasten", "tally"]


async def browse(access: Access, which: Which, after: int | None, limit: int) -> Listing:
    newest = sql_operating.NEWEST_UNFINISHED if which.unfinished else sql_operating.NEWEST
    seqs, end = await _part(access, newest, after, limit)
    names = which.name, which.tenant, which.principal
    spans = which.older_ms, which.newer_ms, which.unchanged_ms
    statuses = [status.value for status in which.statuses]
    found = await access.connection.fetch(sql_operating.TASK_LISTED, access.clock, seqs, statuses, *names, *spans)
    return Listing(tuple(rows.readable(found, lambda row: rows.listed(row, access.codec))), end)


async def _part(access: Access, newest: str, after: int | None, limit: int) -> tuple[list[int], int | None]:
    found = await access.connection.fetch(newest, finding.NEWEST if after is None else after, limit)
    seqs = [seq for (seq,) in found]
    return seqs, seqs[-1] if len(seqs) == limit else None


async def find_by_prefix(access: Access, prefix: str, most: int) -> tuple[Listed, ...]:
    found = await access.connection.fetch(sql_operating.TASK_NAMED, prefix, rows.end_of(prefix), most)
    return tuple(rows.readable(found, lambda row: rows.listed(row, access.codec)))


async def tally(access: Access, after: int | None, limit: int) -> Tally:
    seqs, end = await _part(access, sql_operating.NEWEST, after, limit)
    return Tally(rows.counts(await access.connection.fetch(sql_operating.TASK_TALLY, seqs), access.codec), end)


async def hasten(access: Access, task_id: str) -> Done:
    sheet = Sheet(access)
    async with access.writing():
        seq = await access.connection.fetchval(sql_operating.TASK_SEQ, task_id)
        if seq is None:
            raise TaskNotFound
        await sheet.lock([seq])
        if sheet.run_of(seq) is None:
            return Done(Hastened.OVER)
        done = await _hasten(sheet, seq)
        await sheet.flush()
    return done


async def _hasten(sheet: Sheet, seq: int) -> Done:
    connection = sheet.access.connection
    times = await connection.fetch(sql_operating.TIMES, seq)
    naps = any(nap and at > sheet.now for at, nap in times)
    promised = {at for at, nap in times if not nap}

    def act(task: Record | None, now: int) -> Hastened:
        assert task is not None  # noqa: S101 - it is locked
        return verbs.hasten(task, now, naps=naps, promised=promised)

    done = sheet.run(seq, act)
    if done.value is Hastened.DUE:
        await connection.execute(sql_operating.ENTRY_HASTEN, seq, sheet.now)
    return done


async def discard(access: Access, task_ids: Collection[str], tombstone_ms: int) -> Done:
    async with access.writing():
        gone = await access.connection.fetch(sql_operating.TASK_DISCARD, access.clock, [*task_ids])
        await housekeeping.bury(access, gone, tombstone_ms)
    return Done(len(gone))
