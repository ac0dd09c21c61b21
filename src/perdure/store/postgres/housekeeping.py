"""What nobody asks for and somebody has to do, and where leases begin and end.

Any number of replicas may do it at once. Who comes second waits for the first, looks again, and finds nothing left to
do; or, where it is about deleting only, passes over what is being deleted.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from perdure.domain import policy, timeline
from perdure.domain.errors import LeaseLost
from perdure.domain.model import JSONObject, Renewal, Session
from perdure.domain.timeline import Event
from perdure.store import verbs
from perdure.store.codec import encode
from perdure.store.records import Record, Run

from . import sql
from .access import Access
from .jobs import Done
from .sheet import Act, Sheet, unfinished

__all__ = [
    "bury",
    "close_session",
    "expire",
    "free_overdue",
    "give_back",
    "open_session",
    "purge",
    "renew",
    "take_over",
]


async def open_session(access: Access, lease_ms: int, info: JSONObject) -> Session:
    session_id = secrets.token_hex(8)
    expires_at = await access.connection.fetchval(sql.SESSION_OPEN, access.clock, session_id, lease_ms, encode(info))
    return Session(session_id, expires_at, info)


async def renew(access: Access, session_id: str, lease_ms: int) -> Renewal:
    if await access.connection.execute(sql.SESSION_RENEW, access.clock, session_id, lease_ms) == "UPDATE 0":
        raise LeaseLost
    held = await access.connection.fetch(sql.RUN_HELD_BY, session_id)
    return Renewal(
        frozenset(seq for seq, _, cancelled in held if cancelled), frozenset((seq, fence) for seq, fence, _ in held)
    )


async def give_back(access: Access, session_id: str, held: frozenset[tuple[int, int]]) -> Done:
    sheet = Sheet(access)
    async with access.writing():
        await sheet.lock([seq for seq, _ in held])
        still = [seq for seq, fence in sorted(held) if _holds(session_id, fence, sheet.run_of(seq))]
        done = _on_each(sheet, still, _give_back)
        await sheet.flush()
    return done


def _holds(session_id: str, fence: int, run: Run | None) -> bool:
    return run is not None and (run.session, run.fence) == (session_id, fence)


async def close_session(access: Access, session_id: str) -> Done:
    sheet = Sheet(access)
    async with access.writing():
        await access.connection.execute(sql.SESSION_DELETE, session_id)
        done = _on_each(sheet, await _lock_of(sheet, [session_id]), _give_back)
        await sheet.flush()
    return done


async def take_over(access: Access, gone: Collection[str], keep: Collection[str]) -> Done:
    sheet = Sheet(access)
    async with access.writing():
        lapsed = await access.connection.fetch(sql.SESSION_DELETE_DEAD, access.clock, [*gone], [*keep])
        dead = [id_ for (id_,) in lapsed]
        done = _on_each(sheet, await _lock_of(sheet, dead) if dead else (), _bury(timeline.died))
        await sheet.flush()
    return done


async def _lock_of(sheet: Sheet, sessions: Collection[str]) -> list[int]:
    """Lock the runs that sessions hold. They are deleted by now, so that no claim can add to these."""
    held = await sheet.access.connection.fetch(sql.RUN_OF_SESSIONS, [*sessions])
    await sheet.lock([seq for (seq,) in held])
    runs = [(seq, sheet.run_of(seq)) for (seq,) in held]
    # Without those that their worker was just about to give back.
    return sorted(seq for seq, run in runs if run is not None and run.session in sessions)


async def free_overdue(access: Access, limit: int, late_ms: int) -> Done:
    late = await access.connection.fetch(sql.RUN_LATE, access.clock, limit, late_ms)
    if not late:
        return Done(0)
    sheet = Sheet(access)
    async with access.writing():
        await sheet.lock([seq for (seq,) in late])
        overdue = (seq for (seq,) in late if _overran(sheet.run_of(seq), sheet.now - late_ms))
        done = _on_each(sheet, overdue, _bury(timeline.overran))
        await sheet.flush()
    return done


def _overran(run: Run | None, instant: int) -> bool:
    deadline_at = None if run is None else run.deadline_at
    return deadline_at is not None and deadline_at < instant


async def expire(access: Access, limit: int) -> Done:
    overdue = await access.connection.fetch(sql.TASK_OVERDUE, access.clock, limit)
    if not overdue:
        return Done(0)
    sheet = Sheet(access)
    async with access.writing():
        await sheet.lock([seq for (seq,) in overdue])
        expired = (seq for (seq,) in overdue if _expired(sheet.records.get(seq), sheet.now))
        done = _on_each(sheet, expired, _expire)
        await sheet.flush()
    return done


def _expired(record: Record | None, now: int) -> bool:
    expires_at = None if record is None else policy.expires_at(record.task.created_at, record.task.ttl_ms)
    return expires_at is not None and expires_at <= now


async def purge(access: Access, limit: int, linger_ms: int, tombstone_ms: int) -> Done:
    async with access.writing():
        await access.connection.execute(sql.TOMBSTONE_PURGE, access.clock, limit)
        gone = await access.connection.fetch(sql.TASK_PURGE, access.clock, limit, linger_ms)
        await bury(access, gone, tombstone_ms)
    return Done(len(gone))


async def bury(access: Access, gone: Sequence[Any], tombstone_ms: int) -> None:
    """Delete all that belongs to tasks that were deleted, and leave tombstones: seq, id, tenant, principal, now."""
    if not gone:
        return
    seqs, ids, tenants, principals, nows = zip(*gone, strict=True)
    until = [now + tombstone_ms for now in nows]
    await access.connection.execute(sql.TOMBSTONE_WRITE, ids, tenants, principals, until)
    for statement in (sql.INPUT_DELETE, sql.ENTRY_DELETE, sql.EVENT_DELETE):
        await access.connection.execute(statement, seqs)


# -- inside ------------------------------------------------------------------------------------------------------------


def _on_each(sheet: Sheet, seqs: Iterable[int], act: Act) -> Done:
    """Run a verb on each of the tasks, or put it off: how many, and what is to be announced."""
    done = [sheet.free(seq, act) for seq in seqs]
    return Done(len(done), changes=[change for each in done for change in each.changes])


def _give_back(task: Record | None, now: int) -> None:
    verbs.give_back(*unfinished(task), now)


def _expire(task: Record | None, now: int) -> None:
    verbs.expire(unfinished(task)[0], now)


def _bury(event: Callable[[int, int, int], Event]) -> Act:
    def act(task: Record | None, now: int) -> None:
        verbs.bury(*unfinished(task), event, now)

    return act
