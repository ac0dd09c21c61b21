"""What workers claim: their sessions, and whose run is next.

A claim is the hot path of an idle server and of a busy one. With nothing to do it is two look-ups and writes nothing,
so that it costs no fsync; and as long as one tenant waits for a handler, which is the frequent case, its runs are
taken by a single statement.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Any

from perdure.domain import inputs, lifecycle, timeline
from perdure.domain.errors import LeaseLost, StoreUnavailable, Unreadable
from perdure.domain.model import Claim, Demand, JSONObject, Renewal, Session, Task
from perdure.store import rows
from perdure.store.base import PROMOTED
from perdure.store.codec import encode

from . import shared, sql
from .writer import Transaction

__all__ = ["claim", "close_session", "give_back", "open_session", "renew"]

_Taken = tuple[int, int, int, int, int | None]
"""A row of `sql.RUN_CLAIM`."""

_Claimant = tuple[str, int, int, str]
"""Who claims, under which fence, when, and for which handler: what `sql.RUN_CLAIM` binds first."""


def open_session(tx: Transaction, lease_ms: int, info: JSONObject, now: int) -> Session:
    session = Session(secrets.token_hex(8), now + lease_ms, info)
    tx.run(sql.SESSION_INSERT, session.id, session.expires_at, encode(info))
    return session


def renew(tx: Transaction, session_id: str, lease_ms: int, now: int) -> Renewal:
    if not tx.run(sql.SESSION_RENEW, now + lease_ms, session_id):
        raise LeaseLost
    held = tx.all(sql.RUN_HELD_BY, session_id)
    return Renewal(
        frozenset(seq for seq, _, cancelled in held if cancelled), frozenset((seq, fence) for seq, fence, _ in held)
    )


def give_back(tx: Transaction, session_id: str, held: frozenset[tuple[int, int]], now: int) -> int:
    still = sorted(seq for seq, fence, _ in tx.all(sql.RUN_HELD_BY, session_id) if (seq, fence) in held)
    for seq in still:
        _come_back(tx, seq, now, minded=shared.minds(tx, seq))
    return len(still)


def close_session(tx: Transaction, session_id: str, now: int) -> None:
    tx.run(sql.SESSION_DELETE, session_id)
    for seq, _, _, minded in tx.all(sql.RUN_OF_SESSIONS, encode([session_id])):
        _come_back(tx, seq, now, minded=bool(minded))


def _come_back(tx: Transaction, seq: int, now: int, *, minded: bool) -> None:
    """A run that its worker leaves unfinished."""
    try:
        task = shared.by_seq(tx, seq)
    except Unreadable:
        shared.free_unread(tx, seq, now)
    else:
        shared.free(tx, task, lifecycle.on_free(task, minded=minded), now)


def claim(tx: Transaction, session_id: str, demands: Sequence[Demand], limit: int, now: int) -> tuple[Claim, ...]:
    alive = tx.one(sql.SESSION_ALIVE, now, session_id, now)
    if alive is None:
        raise LeaseLost
    if alive != (0,):
        tx.run(sql.RUN_PROMOTE, shared.AT_ONCE, now, PROMOTED)
    # One fence for all, drawn once there is something to claim, so that an idle worker writes nothing.
    fence, taken = 0, list[_Taken]()
    for demand in demands:
        wanted = min(demand.limit, limit - len(taken))
        tenants = _in_turn(tx, demand, wanted) if wanted > 0 else ()
        if tenants:
            fence = fence or _next_fence(tx)
            taken += _take(tx, (session_id, fence, now, demand.handler), tenants, wanted)
    claims = (_claim(tx, row, (session_id, fence), now) for row in taken)
    return tuple([claim for claim in claims if claim is not None])


def _next_fence(tx: Transaction) -> int:
    drawn = tx.one(sql.FENCE_NEXT)
    if drawn is None:  # a damaged file; without it two claims would look alike
        raise StoreUnavailable("The task store has lost its counter of fences, and has to be restored from a backup")
    return drawn[0]


def _claim(tx: Transaction, taken: _Taken, by: tuple[str, int], now: int) -> Claim | None:
    """The claim; None of what can't be read here, which is put off."""
    _, seq, failures, deaths, deadline_at = taken
    row = list[Any](tx.one(sql.TASK_CLAIMED, now, seq) or ())  # of a damaged file it may be lost
    try:
        task = rows.task(row[6:], tx.codec)
        operation = rows.operation(row[1:6], task, tx.codec)
        if row[0]:
            _give_up_questions(tx, task, now)
    except Unreadable:
        shared.free_unread(tx, seq, now)
        tx.codec.put_off(str(row[6 + rows.ID]) if row else "")
        return None
    event = lifecycle.on_claim(task)
    if event is not None:
        task = shared.apply(tx, task, event, now)
    session_id, fence = by
    return Claim(task, operation, fence, now, failures, deaths, deadline_at, session_id)


def _give_up_questions(tx: Transaction, task: Task, now: int) -> None:
    """A worker goes on with the task, and waits no longer for what has had its time."""
    for key, question in inputs.unanswered(shared.questions(tx, task), now).items():
        tx.run(sql.INPUT_SUPERSEDE, task.seq, key)
        shared.note(tx, task, timeline.unanswered(now, question))


# -- tenants in turn ---------------------------------------------------------------------------------------------------


def _take(tx: Transaction, claimant: _Claimant, tenants: Sequence[str], wanted: int) -> list[_Taken]:
    """One run of each tenant, then another of each, and so on, until that is all that is wanted or ready.

    Not one by one, which would be a statement for each run, but by equal shares: what some tenants leave of theirs is
    shared again by the others, and what can't be divided goes to the first of them.
    """
    if len(tenants) == 1:
        return _taken(tx, claimant, tenants[0], wanted)
    taken: dict[str, list[_Taken]] = {tenant: [] for tenant in tenants}
    left = wanted
    while tenants and left:
        share, more = max(1, left // len(tenants)), list[str]()
        for tenant in tenants:
            if not left:
                break
            got = _taken(tx, claimant, tenant, share)
            taken[tenant] += got
            left -= len(got)
            more += [tenant] if len(got) == share else []
        tenants = more
    return _round_by_round(taken.values())


def _taken(tx: Transaction, claimant: _Claimant, tenant: str, share: int) -> list[_Taken]:
    """Up to `share` of a tenant's runs, that which has been due longest first."""
    statement = sql.RUN_CLAIM_ONE if share == 1 else sql.RUN_CLAIM
    return sorted(tx.all(statement, *claimant, tenant, share))


def _in_turn(tx: Transaction, demand: Demand, wanted: int) -> list[str]:
    """The tenants that wait for a handler, beginning after the one that was served last; no more than are wanted."""
    ((first, last),) = tx.all(sql.RUN_TENANTS_ENDS, demand.handler, demand.handler)
    if first is None or first == last:
        return [] if first is None else [first]
    if demand.after is None or not first <= demand.after < last:
        return _tenants(tx, demand.handler, first, wanted)
    later = _tenants(tx, demand.handler, demand.after, wanted + 1)[1:]
    before = _tenants(tx, demand.handler, first, wanted - len(later))
    return later + [tenant for tenant in before if tenant <= demand.after]


def _tenants(tx: Transaction, handler: str, start: str, most: int) -> list[str]:
    """`start`, and the tenants after it that wait for a handler; `most` in all."""
    return [tenant for (tenant,) in tx.all(sql.RUN_TENANTS, start, handler, most)]


def _round_by_round(taken: Iterable[Sequence[_Taken]]) -> list[_Taken]:
    """The first of each, then the second of each, and so on."""
    return [each for each in chain.from_iterable(zip_longest(*taken)) if each is not None]
