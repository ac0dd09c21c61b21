"""Claiming: a look without locks, a plan, and one statement that takes what was planned.

With nothing to do a claim is the look alone: one round trip, no lock, nothing written, so that idle workers cost the
database next to nothing. The plan serves the tenants in turn from how many runs each of them has. Other workers plan
from the same sight, so what one of them is about to take is passed over (SKIP LOCKED): it is then a smaller claim, and
never a wait.

A connection that breaks at the COMMIT leaves it open whether the runs were claimed. The session lives on, so nobody
would take them over from it; therefore the fence of such a claim is remembered, and whatever it did take is given back
before the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice, zip_longest
from typing import Any

from perdure.domain.errors import LeaseLost
from perdure.domain.model import Claim, Demand, Status
from perdure.store import rows, verbs
from perdure.store.base import PROMOTED
from perdure.store.records import Record, Run

from . import sql
from .lanes import Done
from .sheet import Sheet
from .transactions import Transactions
from .url import Connection

__all__ = ["Claimant", "Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker asks for."""

    session_id: str
    demands: Sequence[Demand]
    limit: int

    @property
    def most(self) -> int:
        """How many runs it may get."""
        return min(self.limit, sum(demand.limit for demand in self.demands))

    def kind(self) -> tuple[object, ...]:
        """The same for claims that can be made as one: those for so many runs of a single handler."""
        if len(self.demands) != 1:
            return (id(self),)
        (demand,) = self.demands
        return (self.session_id, demand.handler)


Ready = dict[tuple[str, str], int]
"""How many runs a tenant has ready for a handler."""

_Order = list[tuple[str, list[str]]]
"""Handlers, each with its tenants in their turn."""


@dataclass(slots=True)
class Claimant:
    """Claims on behalf of this process. `unsure`: fences of claims of which nobody knows whether they were made."""

    transactions: Transactions
    unsure: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    async def claim(self, connection: Connection, wanted: Sequence[Wanted], clock: int | None) -> list[Done]:
        """Claims, as one where they ask for runs of the same handlers."""
        done: list[Done] = []
        for _, alike in groupby(wanted, key=Wanted.kind):
            wishes = [*alike]
            got = await self._claim(connection, _sum(wishes), clock)
            done += [got] if len(wishes) == 1 else _dealt(got, wishes)
        return done

    async def _claim(self, connection: Connection, wanted: Wanted, clock: int | None) -> Done:
        try:
            await self._give_back(connection, wanted.session_id, clock)
            async with self.transactions.reading(connection):
                timers, ready = await _look(connection, wanted, clock)
            if not timers and not ready:
                return Done(())
            return await self._take(connection, wanted, ready, clock, timers=timers)
        except LeaseLost as error:
            return Done(error=error)

    async def _take(
        self, connection: Connection, wanted: Wanted, ready: Ready, clock: int | None, *, timers: bool
    ) -> Done:
        sheet, claims = Sheet(connection), list[Claim]()
        async with self.transactions.writing(connection):
            if timers:
                await connection.execute(sql.RUN_PROMOTE, clock, PROMOTED)
                _, ready = await _look(connection, wanted, clock)
            alive = await connection.fetchrow(sql.SESSION_ALIVE, clock, wanted.session_id)
            if alive is not None:
                sheet.now, fence = alive
                self.unsure.setdefault(wanted.session_id, []).append(fence)
                claims = await _claims(sheet, wanted, ready, fence)
        del self.unsure[wanted.session_id]
        if alive is None:
            raise LeaseLost
        return Done(tuple(claims), changes=[change for each in sheet.records.values() for change in each.changes])

    async def _give_back(self, connection: Connection, session_id: str, clock: int | None) -> None:
        fences = self.unsure.get(session_id)
        if not fences:
            return
        async with self.transactions.writing(connection):
            sheet = Sheet(connection)
            found = await connection.fetch(sql.RUN_ORPHANED, session_id, fences)
            await sheet.lock([seq for (seq,) in found], clock)
            for seq, record in list(sheet.records.items()):
                if record.run is not None and record.run.session == session_id and record.run.fence in fences:
                    sheet.run(seq, lambda task, now: verbs.give_back(*_running(task), now))
            await sheet.flush()
        del self.unsure[session_id]


def _sum(wishes: Sequence[Wanted]) -> Wanted:
    """What claims ask for together. A single handler's, unless it is one claim."""
    if len(wishes) == 1:
        return wishes[0]
    total = sum(wish.most for wish in wishes)
    return Wanted(wishes[0].session_id, [replace(wishes[0].demands[0], limit=total)], total)


def _dealt(got: Done, wishes: Sequence[Wanted]) -> list[Done]:
    """What came of several claims as one, to each its share; and the changes with the first."""
    claims = iter(got.value or ())
    shares = [tuple(islice(claims, wish.most)) for wish in wishes]
    return [
        Done(share, got.error, got.changes if wish is wishes[0] else ())
        for wish, share in zip(wishes, shares, strict=True)
    ]


def _running(task: Record | None) -> tuple[Record, Run]:
    assert task is not None and task.run is not None  # noqa: S101, PT018 - it was looked at just before
    return task, task.run


async def _look(connection: Connection, wanted: Wanted, clock: int | None) -> tuple[bool, Ready]:
    """Whether timers have come due, and what is ready.

    Raises:
        LeaseLost: the session is gone, or its lease has lapsed.
    """
    most = {demand.handler: min(demand.limit, wanted.limit) for demand in wanted.demands}
    handlers = [handler for handler, count in most.items() if count > 0]
    found = await connection.fetch(
        sql.CLAIM_LOOK, clock, wanted.session_id, handlers, [most[each] for each in handlers]
    )
    timers, ready = None, Ready()
    for handler, tenant, count in found:
        if tenant is None:
            timers = count
        else:
            ready[handler, tenant] = count
    if timers is None:
        raise LeaseLost
    return bool(timers), ready


# -- tenants in turn ---------------------------------------------------------------------------------------------------


def _plan(wanted: Wanted, ready: Ready) -> tuple[_Order, Ready]:
    """In which order the tenants of each handler are served, and how many of the runs each of them gets.

    One run of each tenant, then another of each, and so on, until that is all that is wanted or ready.
    """
    order: _Order = []
    shares, left = Ready(), wanted.limit
    for demand in wanted.demands:
        counts = {tenant: count for (handler, tenant), count in ready.items() if handler == demand.handler}
        tenants = _rotated(sorted(counts), demand.after)
        count = min(demand.limit, left)
        given = _rounds(tenants, counts, count)
        order.append((demand.handler, tenants))
        shares |= {(demand.handler, tenant): share for tenant, share in given.items()}
        left -= sum(given.values())
    return order, shares


def _rotated(tenants: Sequence[str], after: str | None) -> list[str]:
    """Beginning with the tenant that comes after the one that was served last."""
    later = [tenant for tenant in tenants if after is not None and tenant > after]
    return later + [tenant for tenant in tenants if tenant not in later]


def _rounds(tenants: Sequence[str], ready: Mapping[str, int], wanted: int) -> dict[str, int]:
    given: dict[str, int] = {}
    hungry: list[str] = [*tenants]
    left = wanted
    while hungry and left > 0:
        share = max(1, left // len(hungry))
        for tenant in hungry:
            more = min(share, ready[tenant] - given.get(tenant, 0), left)
            given[tenant] = given.get(tenant, 0) + more
            left -= more
        hungry = [tenant for tenant in hungry if given[tenant] < ready[tenant]]
    return {tenant: share for tenant, share in given.items() if share}


# -- taking ------------------------------------------------------------------------------------------------------------


async def _claims(sheet: Sheet, wanted: Wanted, ready: Ready, fence: int) -> list[Claim]:
    """Take what is planned. The runs come back in the order of the plan, each tenant's longest due first."""
    order, shares = _plan(wanted, ready)
    if not shares:
        return []
    handlers, tenants = zip(*shares, strict=True)
    given = (handlers, tenants, [*shares.values()], wanted.session_id, fence, sheet.now)
    taken = await sheet.connection.fetch(sql.RUN_CLAIM, *given)
    by_turn: dict[tuple[str, str], list[Any]] = {}
    for row in sorted(taken, key=lambda row: (row[0], row[12])):
        by_turn.setdefault((row[2], row[14]), []).append(row)
    found = [
        row
        for handler, turn in order
        for row in _round_by_round([by_turn.get((handler, tenant), []) for tenant in turn])
    ]
    return await _claimed(sheet, found, wanted.session_id, fence)


async def _claimed(sheet: Sheet, taken: Sequence[Any], session_id: str, fence: int) -> list[Claim]:
    """The claims; and what taking the run changes in the few tasks that have asked something."""
    claims: dict[int, Claim] = {}
    for row in taken:
        task, run = rows.task(row[12:]), Run(*row[2:12])
        claims[task.seq] = Claim(task, fence, sheet.now, run.failures, run.deaths, run.deadline_at)
        if row[1] or task.status is Status.INPUT_REQUIRED:
            sheet.records[task.seq] = Record(task, run)
    if sheet.records:
        await sheet.load_questions([*sheet.records])
        for seq in list(sheet.records):
            claims[seq] = sheet.run(seq, lambda task, now: verbs.claim(*_running(task), session_id, fence, now)).value
        await sheet.flush()
    return [*claims.values()]


def _round_by_round(taken: Iterable[Sequence[Any]]) -> list[Any]:
    """The first of each, then the second of each, and so on."""
    return [each for each in chain.from_iterable(zip_longest(*taken)) if each is not None]
