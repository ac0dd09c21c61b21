"""What nobody asks for and somebody has to do, and where leases begin and end.

Any number of replicas may do it at once. Who comes second waits for the first, looks again, and finds nothing left to
do; or, where it is about deleting only, passes over what is being deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable

from perdure.domain import policy, timeline
from perdure.domain.errors import LeaseLost
from perdure.domain.model import JSONObject, Renewal, Session
from perdure.domain.timeline import Event
from perdure.store import verbs
from perdure.store.codec import encode
from perdure.store.records import Record

from . import sql
from .lanes import Done
from .sheet import Act, Sheet, unfinished
from .transactions import Transactions
from .url import Connection

__all__ = ["close_session", "expire", "free_overdue", "open_session", "purge", "renew", "take_over"]


async def open_session(connection: Connection, lease_ms: int, info: JSONObject, clock: int | None) -> Session:
    session_id = secrets.token_hex(8)
    expires_at = await connection.fetchval(sql.SESSION_OPEN, clock, session_id, lease_ms, encode(info))
    return Session(session_id, expires_at, info)


async def renew(connection: Connection, session_id: str, lease_ms: int, clock: int | None) -> Renewal:
    if await connection.execute(sql.SESSION_RENEW, clock, session_id, lease_ms) == "UPDATE 0":
        raise LeaseLost
    return Renewal(frozenset(seq for (seq,) in await connection.fetch(sql.RUN_CANCELLED, session_id)))


async def close_session(transactions: Transactions, connection: Connection, session_id: str, clock: int | None) -> Done:
    sheet = Sheet(connection)
    async with transactions.writing(connection):
        await connection.execute(sql.SESSION_DELETE, session_id)
        await _lock_of(sheet, [session_id], clock)
        done = _on_each(sheet, sheet.records, _give_back)
        await sheet.flush()
    return done


async def take_over(
    transactions: Transactions, connection: Connection, gone: Collection[str], keep: Collection[str], clock: int | None
) -> Done:
    sheet = Sheet(connection)
    async with transactions.writing(connection):
        dead = [id_ for (id_,) in await connection.fetch(sql.SESSION_DELETE_DEAD, clock, [*gone], [*keep])]
        if dead:
            await _lock_of(sheet, dead, clock)
        done = _on_each(sheet, sheet.records, _bury(timeline.died))
        await sheet.flush()
    return done


async def _lock_of(sheet: Sheet, sessions: Collection[str], clock: int | None) -> None:
    """Lock the runs that sessions hold. They are deleted by now, so that no claim can add to these."""
    held = await sheet.connection.fetch(sql.RUN_OF_SESSIONS, [*sessions])
    await sheet.lock([seq for (seq,) in held], clock)
    for seq, record in list(sheet.records.items()):
        if record.run is None or record.run.session not in sessions:  # its worker was just about to give it back
            del sheet.records[seq]


async def free_overdue(
    transactions: Transactions, connection: Connection, limit: int, late_ms: int, clock: int | None
) -> Done:
    late = await connection.fetch(sql.RUN_LATE, clock, limit, late_ms)
    if not late:
        return Done(0)
    sheet = Sheet(connection)
    async with transactions.writing(connection):
        await sheet.lock([seq for (seq,) in late], clock)
        overdue = (seq for (seq,) in late if _overran(sheet.records.get(seq), sheet.now - late_ms))
        done = _on_each(sheet, overdue, _bury(timeline.overran))
        await sheet.flush()
    return done


def _overran(record: Record | None, instant: int) -> bool:
    deadline_at = None if record is None or record.run is None else record.run.deadline_at
    return deadline_at is not None and deadline_at < instant


async def expire(transactions: Transactions, connection: Connection, limit: int, clock: int | None) -> Done:
    overdue = await connection.fetch(sql.TASK_OVERDUE, clock, limit)
    if not overdue:
        return Done(0)
    sheet = Sheet(connection)
    async with transactions.writing(connection):
        await sheet.lock([seq for (seq,) in overdue], clock)
        expired = (seq for (seq,) in overdue if _expired(sheet.records.get(seq), sheet.now))
        done = _on_each(sheet, expired, _expire)
        await sheet.flush()
    return done


def _expired(record: Record | None, now: int) -> bool:
    expires_at = None if record is None else policy.expires_at(record.task.created_at, record.task.ttl_ms)
    return expires_at is not None and expires_at <= now


async def purge(
    transactions: Transactions, connection: Connection, limit: int, linger_ms: int, tombstone_ms: int, clock: int | None
) -> Done:
    async with transactions.writing(connection):
        await connection.execute(sql.TOMBSTONE_PURGE, clock, limit)
        gone = await connection.fetch(sql.TASK_PURGE, clock, limit, linger_ms)
        if gone:
            seqs, ids, tenants, principals, nows = zip(*gone, strict=True)
            until = [now + tombstone_ms for now in nows]
            await connection.execute(sql.TOMBSTONE_WRITE, ids, tenants, principals, until)
            for statement in (sql.INPUT_DELETE, sql.ENTRY_DELETE, sql.EVENT_DELETE):
                await connection.execute(statement, seqs)
    return Done(len(gone))


# -- inside ------------------------------------------------------------------------------------------------------------


def _on_each(sheet: Sheet, seqs: Iterable[int], act: Act) -> Done:
    """Run a verb on each of the tasks: how many, and what is to be announced."""
    done = [sheet.run(seq, act) for seq in list(seqs)]
    return Done(len(done), changes=[change for each in done for change in each.changes])


def _give_back(task: Record | None, now: int) -> None:
    verbs.give_back(*unfinished(task), now)


def _expire(task: Record | None, now: int) -> None:
    verbs.expire(unfinished(task)[0], now)


def _bury(event: Callable[[int, int, int], Event]) -> Act:
    def act(task: Record | None, now: int) -> None:
        verbs.bury(*unfinished(task), event, now)

    return act
