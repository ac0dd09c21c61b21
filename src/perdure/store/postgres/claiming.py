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

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice, zip_longest
from typing import Any

from perdure.domain.errors import LeaseLost, Unreadable
from perdure.domain.model import Claim, Demand, Status
from perdure.store import rows, verbs
from perdure.store.base import PROMOTED
from perdure.store.records import Record, Run

from . import sql
from .access import Access
from .jobs import Done
from .sheet import Sheet, unfinished
from .sight import EVERYTHING, Sight

__all__ = ["Claimant", "Wanted", "plan", "round_by_round"]


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


@dataclass(frozen=True, slots=True)
class Found:
    """What a look has found. `since`: from when on, of each tenant; `timers`: some have come due, and are not in it."""

    now: int = 0
    timers: bool = False
    ready: Ready = field(default_factory=Ready)
    since: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


_Order = list[tuple[str, list[str]]]
"""Handlers, each with its tenants in their turn."""


@dataclass(slots=True)
class Claimant:
    """Claims on behalf of this process. `unsure`: fences of claims of which nobody knows whether they were made."""

    sight: Sight = field(default_factory=Sight)
    unsure: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    async def claim(self, access: Access, wanted: Sequence[Wanted]) -> list[Done]:
        """Claims, as one where they ask for runs of the same handlers."""
        done: list[Done] = []
        for _, alike in groupby(wanted, key=Wanted.kind):
            wishes = [*alike]
            got = await self._claim(access, _sum(wishes))
            done += [got] if len(wishes) == 1 else _dealt(got, wishes)
        return done

    async def _claim(self, access: Access, wanted: Wanted) -> Done:
        await self._give_back(access, wanted.session_id)
        async with access.reading():
            found = await self._look(access, wanted)
        if found is None:
            return Done(error=LeaseLost())
        if not found.timers and not found.ready:
            return Done(())
        return await self._take(access, wanted, found)

    async def _look(self, access: Access, wanted: Wanted) -> Found | None:
        """What there is to claim: what is known to be there, and at times whatever else is. None: the lease is lost."""
        found = await _look(access, wanted, self.sight)
        if found is None:
            return None
        if self.sight.set_back(found.now) or self.sight.worth_a_full_look(enough=_wants_no_more(wanted, found.ready)):
            started = self.sight.clock()
            try:
                found = await _look(access, wanted, Sight())
            finally:  # one that was given up has taken its share of the time as well
                self.sight.looked(started)
        return found

    async def _take(self, access: Access, wanted: Wanted, found: Found) -> Done:
        sheet, promoted = Sheet(access), ""
        async with access.writing():
            # The session first, and then runs, as whoever takes it over or closes it: two orders would be a deadlock.
            alive = await access.connection.fetchrow(sql.SESSION_ALIVE, access.clock, wanted.session_id)
            if alive is None:
                return Done(error=LeaseLost())
            began, fence = alive
            sheet.now = began
            if found.timers:
                promoted = await access.connection.execute(sql.RUN_PROMOTE, access.clock, PROMOTED)
                found = await _look(access, wanted, Sight()) or Found()
            self.unsure.setdefault(wanted.session_id, []).append(fence)
            taken = await _take(sheet, wanted, found, fence)
        del self.unsure[wanted.session_id]
        if promoted not in ("", f"UPDATE {PROMOTED}"):
            self.sight.promoted(began)  # no later: `sheet.now` moves on with what is read again
        for (handler, tenant), due_at in taken.last.items():
            self.sight.taken(handler, tenant, due_at)
        changes = [change for each in sheet.records.values() for change in each.changes]
        return Done(tuple(taken.claims), changes=changes)

    async def _give_back(self, access: Access, session_id: str) -> None:
        fences = self.unsure.get(session_id)
        if not fences:
            return
        async with access.writing():
            sheet = Sheet(access)
            # The server may not have come to that COMMIT yet, and what it has not committed can't be seen.
            await access.connection.execute(sql.SESSION_ALONE, session_id)
            found = await access.connection.fetch(sql.RUN_ORPHANED, session_id, fences)
            await sheet.lock([seq for (seq,) in found])
            for seq, run in [(seq, sheet.run_of(seq)) for (seq,) in found]:
                if run is not None and run.session == session_id and run.fence in fences:
                    sheet.free(seq, lambda task, now: verbs.give_back(*unfinished(task), now))
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


async def _look(access: Access, wanted: Wanted, sight: Sight) -> Found | None:
    """What a look from where `sight` says finds. None: the session is gone, or its lease has lapsed."""
    most = {demand.handler: min(demand.limit, wanted.limit) for demand in wanted.demands}
    counts = [(handler, count) for handler, count in most.items() if count > 0]
    after = {demand.handler: demand.after for demand in wanted.demands if demand.after is not None}
    gaps, known = [*sight.gaps(counts, after)], [*sight.known(counts)]
    given = (*_columns(gaps, 4), *_columns(known, 4), sight.timers)
    found = await access.connection.fetch(sql.CLAIM_LOOK, access.clock, wanted.session_id, *given)
    (now, timers), *_ = [(row[0], row[3]) for row in found if row[0] is not None]
    if timers is None:
        return None
    ready = {(handler, tenant): count for _, handler, tenant, count in found if tenant is not None and count}
    return Found(now, bool(timers), ready, {(handler, tenant): since for handler, _, tenant, since in known})


def _columns(found: Sequence[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [[row[column] for row in found] for column in range(width)]


def _wants_no_more(wanted: Wanted, ready: Ready) -> bool:
    """Whether there is enough for all demands, or for those before the limit is reached."""
    left = wanted.limit
    for demand in wanted.demands:
        there = sum(count for (handler, _), count in ready.items() if handler == demand.handler)
        if there < min(demand.limit, left):
            return False
        left -= min(demand.limit, left)
    return True


# -- tenants in turn ---------------------------------------------------------------------------------------------------


def plan(wanted: Wanted, ready: Ready) -> tuple[_Order, Ready]:
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
    first = 0 if after is None else bisect_right(tenants, after)
    return [*tenants[first:], *tenants[:first]]


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


@dataclass(slots=True)
class _Taken:
    """Claims, and since when the last of each tenant's had been due."""

    claims: list[Claim] = field(default_factory=list[Claim])
    last: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


async def _take(sheet: Sheet, wanted: Wanted, found: Found, fence: int) -> _Taken:
    """Take what is planned. The runs come back in the order of the plan, each tenant's longest due first."""
    order, shares = plan(wanted, found.ready)
    if not shares:
        return _Taken()
    planned = [(*key, share, found.since.get(key, EVERYTHING)) for key, share in shares.items()]
    given = (*_columns(planned, 4), wanted.session_id, fence, sheet.now)
    by_turn: dict[tuple[str, str], list[Any]] = {}
    for row in sorted(await sheet.access.connection.fetch(sql.RUN_CLAIM, *given), key=lambda row: (row[0], row[19])):
        by_turn.setdefault((row[2], row[17]), []).append(row)
    in_turn = [
        row
        for handler, turn in order
        for row in round_by_round([by_turn.get((handler, tenant), []) for tenant in turn])
    ]
    claims = await _claimed(sheet, in_turn, wanted.session_id, fence)
    return _Taken(claims, {key: taken[-1][0] for key, taken in by_turn.items()})


async def _claimed(sheet: Sheet, taken: Sequence[Any], session_id: str, fence: int) -> list[Claim]:
    """The claims, without those of tasks that can't be read here."""
    claims: dict[int, Claim] = {}
    asking: list[int] = []
    for row in taken:
        run, seq = Run(*row[2:12]), row[19]
        try:
            task = rows.task(row[17:], sheet.access.codec)
            operation = rows.operation(row[12:17], task, sheet.access.codec)
        except Unreadable:
            _put_off(sheet, seq, run, str(row[17 + rows.ID]))
            continue
        claims[task.seq] = Claim(
            task, operation, fence, sheet.now, run.failures, run.deaths, run.deadline_at, session_id
        )
        if row[1] or task.status is Status.INPUT_REQUIRED:
            asking.append(task.seq)
    if asking:
        await _take_up(sheet, claims, asking)
    await sheet.flush()
    return [*claims.values()]


async def _take_up(sheet: Sheet, claims: dict[int, Claim], asking: Sequence[int]) -> None:
    """What taking the run changes in the few tasks that have asked something.

    The tasks are read again, now that nobody else can change them. That statement saw them before it had the locks on
    their runs, and a request to cancel or an answer that came in between need not have changed the run.
    """
    await sheet.lock(asking)
    # In the order in which they were taken, which is the one in which they are announced.
    sheet.records = {seq: sheet.records[seq] for seq in asking if seq in sheet.records}
    await sheet.load_questions([*sheet.records])
    for seq in asking:
        if seq in sheet.unreadable:
            run = sheet.run_of(seq)
            assert run is not None  # noqa: S101 - it was locked
            _put_off(sheet, seq, run, claims.pop(seq).task.id)
        else:
            claims[seq] = sheet.run(seq, partial(_claim, claims[seq])).value


def _put_off(sheet: Sheet, seq: int, run: Run, id_: str) -> None:
    """Leave a run to whoever can read its task, or to a later time."""
    sheet.access.codec.put_off(id_)
    sheet.put_off(seq, run)


def _claim(taken: Claim, task: Record | None, now: int) -> Claim:
    return verbs.claim(*unfinished(task), taken.operation, taken.session, taken.fence, now)


def round_by_round(taken: Iterable[Sequence[Any]]) -> list[Any]:
    """The first of each, then the second of each, and so on."""
    return [each for each in chain.from_iterable(zip_longest(*taken)) if each is not None]
