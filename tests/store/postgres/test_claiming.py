"""Claims: whose turn it is, and what becomes of one whose end nobody has heard."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import LeaseLost, StoreUnavailable
from perdure.domain.journal import EntryState
from perdure.domain.model import Demand, JSONObject, Owner, Status
from perdure.store.memory.tables import in_turn
from perdure.store.postgres import PostgresStore, claiming, sql
from perdure.store.postgres.access import Access
from perdure.store.postgres.claiming import Claimant, Wanted
from perdure.store.postgres.sight import Sight
from perdure.store.postgres.url import Connection, parse
from perdure.testing import VirtualClock
from perdure.testing.postgresql import Cluster
from perdure.testing.stores.support import (
    ADA,
    AGE,
    DONE,
    HANDLER,
    LEASE,
    NAME,
    NOW,
    TOKEN,
    asks,
    both,
    elsewhere,
    hire,
    new_task,
    sleep,
)
from tests.store.postgres.proxy import Proxy, Side
from tests.support import PATIENCE, eventually

OTHER = "tools/call:other"
COMMIT = "COMMIT\0"  # the whole text of a command, as it goes over the wire
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = 'shared'"

# -- whose turn it is --------------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d", "ä"])
counts = st.dictionaries(names, st.integers(1, 12))


def dealt(demand: Demand, ready: Mapping[str, int]) -> list[str]:
    """To whom the runs of the plan go, in the order in which they are handed out."""
    wanted = Wanted("s", [demand], demand.limit)
    order, shares = claiming.plan(wanted, {(demand.handler, tenant): count for tenant, count in ready.items()})
    ((_, tenants),) = order
    runs = [[tenant] * shares.get((demand.handler, tenant), 0) for tenant in tenants]
    return claiming.round_by_round(runs)


@given(counts, st.integers(0, 30), st.none() | names)
def test_the_plan_serves_tenants_in_turn_as_the_reference_model_does(
    ready: dict[str, int], limit: int, after: str | None
) -> None:
    shares = {tenant: [tenant] * min(count, limit) for tenant, count in ready.items()}
    plan = dealt(Demand(HANDLER, limit, after), {tenant: len(runs) for tenant, runs in shares.items() if runs})
    assert plan == [*in_turn({tenant: runs for tenant, runs in shares.items() if runs}, after)][:limit]


@given(counts, counts, st.integers(0, 8), st.integers(0, 8), st.integers(0, 12))
def test_a_plan_gives_each_demand_what_those_before_it_leave(
    one: dict[str, int], other: dict[str, int], first: int, second: int, limit: int
) -> None:
    ready = {(HANDLER, tenant): count for tenant, count in one.items()}
    ready |= {(OTHER, tenant): count for tenant, count in other.items()}
    _, shares = claiming.plan(Wanted("s", [Demand(HANDLER, first), Demand(OTHER, second)], limit), ready)
    got = {handler: sum(n for (each, _), n in shares.items() if each == handler) for handler in (HANDLER, OTHER)}
    assert got[HANDLER] == min(first, limit, sum(one.values()))
    assert got[OTHER] == min(second, limit - got[HANDLER], sum(other.values()))
    assert all(share <= ready[key] for key, share in shares.items())


# -- claims of one moment ----------------------------------------------------------------------------------------------


@pytest.fixture
async def store(emptied_database: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(emptied_database, clock)
    await store.open()
    yield store
    await store.close()


async def test_claims_that_are_made_as_one_get_what_each_of_them_asks_for(store: PostgresStore) -> None:
    worker = await hire(store)
    tasks = [await store.create(new_task()) for _ in range(6)]
    asked = (1, 2, 0, 4)
    got = await asyncio.gather(*(worker.claim(limit) for limit in asked))
    assert [len(claims) for claims in got] == [1, 2, 0, 3]
    assert [claim.seq for claims in got for claim in claims] == [task.seq for task in tasks]


async def test_of_many_tenants_each_has_its_turn_though_a_look_sees_only_a_few_of_them(store: PostgresStore) -> None:
    worker = await hire(store)
    tenants = [f"t{number:02}" for number in range(40)]
    await asyncio.gather(*(store.create(new_task(owner=Owner(tenant, "ada"))) for tenant in tenants * 2))
    served: list[str] = []
    after: str | None = "t25"
    while claims := await store.claim(worker.session, [Demand(HANDLER, 3, after)], 3):
        served += [claim.task.owner.tenant for claim in claims]
        after = served[-1]
    assert served == (tenants[26:] + tenants[:26]) * 2


async def test_claims_of_one_moment_for_other_handlers_and_sessions_do_not_mix(store: PostgresStore) -> None:
    one, two = await hire(store), await hire(store)
    for name in ("report", "other"):
        for _ in range(2):
            await store.create(new_task(name))
    got = await asyncio.gather(one.claim(1), one.claim(1, OTHER), two.claim(5), two.claim(5, OTHER, HANDLER))
    assert [len(claims) for claims in got] == [1, 1, 1, 1]
    for claims, worker in zip(got, (one, one, two, two), strict=True):
        run = (await store.inspect(claims[0].task.id)).run
        assert run is not None
        assert run.session == worker.session


async def test_claims_of_one_moment_all_hear_that_the_lease_is_lost(store: PostgresStore, clock: VirtualClock) -> None:
    worker = await hire(store)
    await store.create(new_task())
    clock.advance(LEASE)
    got = await asyncio.gather(*(worker.claim(1) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in got] == [LeaseLost] * 3


async def test_tasks_that_are_made_at_one_moment_run_in_the_order_of_the_calls(store: PostgresStore) -> None:
    new = [new_task(owner=Owner("acme", str(number))) for number in range(20)]
    made = await asyncio.gather(*map(store.create, new))
    assert [task.id for task in made] == [each.id for each in new]
    claims = await (await hire(store)).claim(20)
    assert [claim.task.id for claim in claims] == [each.id for each in new]


# -- claims of which nobody knows --------------------------------------------------------------------------------------


@pytest.fixture
async def proxy(emptied_database: str) -> AsyncIterator[Proxy]:
    async with Proxy(emptied_database).up() as proxy:
        yield proxy


@pytest.fixture
async def behind(proxy: Proxy, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(proxy.url, clock)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("side", ["before", "after"])
async def test_what_was_claimed_by_a_commit_that_nobody_heard_of_is_given_back_at_the_next_claim(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore, side: Side
) -> None:
    worker = await hire(behind)
    tasks = [await store.create(new_task()) for _ in range(3)]
    proxy.cut_at(COMMIT, side)
    with pytest.raises(StoreUnavailable):
        await worker.claim(2)
    assert proxy.cut.is_set()
    (load,) = await store.loads()
    assert load.held == (2 if side == "after" else 0)
    claims = await worker.claim(10)
    assert {claim.seq for claim in claims} == {task.seq for task in tasks}
    assert {claim.attempt for claim in claims} == {1}
    for claim in claims:
        await behind.finish(claim, DONE)


async def test_what_was_claimed_is_given_back_also_if_the_server_comes_to_the_commit_late(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore, postgres: Cluster
) -> None:
    worker = await hire(behind)
    tasks = [await store.create(new_task()) for _ in range(3)]
    proxy.cut_at(COMMIT, "late")
    with pytest.raises(StoreUnavailable):
        await worker.claim(2)
    again = asyncio.create_task(worker.claim(10))
    await is_locked_out(postgres)
    proxy.let.set()
    assert {claim.seq for claim in await again} == {task.seq for task in tasks}


async def test_what_such_a_claim_took_is_given_back_also_if_its_task_was_to_be_cancelled(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore
) -> None:
    worker = await hire(behind)
    task = await store.create(new_task())
    proxy.cut_at(COMMIT, "after")
    with pytest.raises(StoreUnavailable):
        await worker.claim_one()
    assert (await store.request_cancel(ADA, task.id)).status is Status.WORKING
    assert await worker.claim() == ()
    assert (await store.get(ADA, task.id)).status is Status.CANCELLED


async def test_such_a_claim_that_was_taken_over_meanwhile_is_nobodys_to_give_back(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore
) -> None:
    worker = await hire(behind)
    task = await store.create(new_task())
    proxy.cut_at(COMMIT, "after")
    with pytest.raises(StoreUnavailable):
        await worker.claim_one()
    assert await store.take_over([worker.session]) == 1
    again = await (await hire(store)).claim_one()
    with pytest.raises(LeaseLost):
        await worker.claim()
    await store.finish(again, DONE)
    assert (await store.get(ADA, task.id)).status is Status.COMPLETED


@pytest.fixture
async def outside(emptied_database: str) -> AsyncIterator[Connection]:
    connection = await parse(emptied_database).connect_directly(PATIENCE)
    yield connection
    await connection.close()


async def is_locked_out(postgres: Cluster) -> None:
    async def waits() -> bool:
        return await asyncio.to_thread(postgres.sql, WAITING) == "1"

    await eventually(waits, "nobody waits for a lock")


async def test_a_claim_that_waits_for_its_session_holds_no_run(
    store: PostgresStore, clock: VirtualClock, outside: Connection, postgres: Cluster
) -> None:
    """Whoever closes a session or takes it over has that first, and then the runs: two orders would be a deadlock."""
    worker = await hire(store)
    await store.create(new_task())
    await store.park(await worker.claim_one(), sleep(1_000))
    clock.advance(1_000)
    closing = outside.transaction()
    await closing.start()
    await outside.execute("DELETE FROM perdure.session WHERE id = $1", worker.session)
    claiming = asyncio.create_task(worker.claim())
    await is_locked_out(postgres)
    assert len(await outside.fetch("SELECT FROM perdure.run FOR UPDATE NOWAIT")) == 1
    await closing.rollback()
    assert len(await claiming) == 1


async def test_a_run_of_such_a_claim_that_somebody_else_frees_just_now_is_not_given_back_again(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore, outside: Connection, postgres: Cluster
) -> None:
    worker = await hire(behind)
    task = await store.create(new_task())
    proxy.cut_at(COMMIT, "after")
    with pytest.raises(StoreUnavailable):
        await worker.claim_one()
    await outside.execute("BEGIN")
    await outside.execute("UPDATE perdure.run SET session = NULL, due_at = $2 WHERE task_seq = $1", task.seq, NOW * 2)
    again = asyncio.create_task(worker.claim())
    await is_locked_out(postgres)
    await outside.execute("COMMIT")
    assert await again == ()
    run = (await store.inspect(task.id)).run
    assert run is not None
    assert run.due_at == NOW * 2


async def test_a_session_that_is_taken_over_between_the_look_and_the_claim_claims_nothing(
    store: PostgresStore, outside: Connection, postgres: Cluster
) -> None:
    worker = await hire(store)
    await store.create(new_task())
    await outside.execute("BEGIN")
    await outside.execute("DELETE FROM perdure.session WHERE id = $1", worker.session)
    late = asyncio.create_task(worker.claim())
    await is_locked_out(postgres)
    await outside.execute("COMMIT")
    with pytest.raises(LeaseLost):
        await late
    (load,) = await store.loads()
    assert load.held == 0


@pytest.mark.parametrize("side", ["before", "after"])
async def test_an_outcome_whose_commit_nobody_heard_of_may_be_written_again(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore, side: Side
) -> None:
    worker = await hire(behind)
    task = await store.create(new_task())
    claim = await worker.claim_one()
    proxy.cut_at(COMMIT, side)
    with pytest.raises(StoreUnavailable):
        await behind.finish(claim, DONE)
    if side == "after":  # it was written, and the run is over: the fence says so
        with pytest.raises(LeaseLost):
            await behind.finish(claim, DONE)
    else:
        await behind.finish(claim, DONE)
    assert (await store.get(ADA, task.id)).result == DONE.result


async def test_a_server_that_is_asked_again_before_it_has_noticed_makes_the_second_wait_for_the_first(
    behind: PostgresStore, proxy: Proxy, store: PostgresStore
) -> None:
    """The row locks of a connection that was cut are held until the server has rolled back, and no longer."""
    worker = await hire(behind)
    task = await store.create(new_task())
    claim = await worker.claim_one()
    await store.park(claim, asks(name=NAME))
    proxy.cut_at(COMMIT, "before")
    with pytest.raises(StoreUnavailable):
        await behind.answer(ADA, task.id, {"name": "Ada"})
    async with asyncio.timeout(PATIENCE):
        await store.answer(ADA, task.id, {"name": "Eve"})
    again = await worker.claim_one()
    assert (await store.journal(again)).questions["name"].response == "Eve"


# -- what is changed meanwhile -----------------------------------------------------------------------------------------


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims see what there is, and lock it once they have this lock."""
    given = "unnest($1::text[], $2::text[], $3::int[], $4::bigint[]) AS share (handler, tenant, wanted, since)"
    assert sql.RUN_CLAIM.count(given) == 1
    late = f"(SELECT * FROM {given}, (SELECT pg_advisory_xact_lock(5) OFFSET 0) AS lock OFFSET 0) AS share"
    monkeypatch.setattr(sql, "RUN_CLAIM", sql.RUN_CLAIM.replace(given, late))


@pytest.mark.usefixtures("held_up")
@pytest.mark.parametrize("change", ["cancel", "answer one", "answer both"])
async def test_what_is_changed_between_a_claim_s_sight_of_a_task_and_its_lock_on_the_run_is_not_overwritten(
    store: PostgresStore, outside: Connection, postgres: Cluster, change: str
) -> None:
    """What a client changes of a task that asks and is due all the same leaves the row of its run as it is."""
    task = await store.create(new_task())
    worker = await hire(store)
    waits = replace(both(asks(name=NAME, age=AGE), elsewhere()), minds_cancel=True)
    await store.park(await worker.claim_one(), waits)
    assert (await store.settle(task.id, "0", TOKEN, EntryState.DONE, None)).status is Status.INPUT_REQUIRED
    await outside.execute("SELECT pg_advisory_lock(5)")
    claiming = asyncio.create_task(worker.claim_one())
    await is_locked_out(postgres)
    if change == "cancel":
        changed = await store.request_cancel(ADA, task.id)
    else:
        answers: JSONObject = {"name": "Ada"} if change == "answer one" else {"name": "Ada", "age": 7}
        changed = await store.answer(ADA, task.id, answers)
    await outside.execute("SELECT pg_advisory_unlock(5)")
    claim = await claiming
    assert await store.get(ADA, task.id) == claim.task
    assert claim.task.status is Status.WORKING
    assert claim.task.cancel_requested == changed.cancel_requested == (change == "cancel")
    assert claim.task.version == changed.version + (changed.status is Status.INPUT_REQUIRED)


# -- what is out of sight ----------------------------------------------------------------------------------------------


async def test_a_run_that_comes_to_be_due_before_what_was_claimed_last_is_seen(
    store: PostgresStore, clock: VirtualClock
) -> None:
    """Its clock is an hour behind, or was set back."""
    worker = await hire(store, 10 * 3_600_000)
    await store.create(new_task())
    await worker.claim_one()
    clock.advance(-3_600_000)
    early = await store.create(new_task())
    clock.now = NOW + 1
    assert (await worker.claim_one()).seq == early.seq


async def test_a_full_look_that_was_given_up_is_not_had_again_at_once(
    store: PostgresStore, emptied_database: str, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes too long while a backup keeps what is gone from being cleaned up, and would take as long each time."""
    seconds = [1_000.0]

    class Overlong(Sight):
        def gaps(self, wanted: Iterable[tuple[str, int]], after: Mapping[str, str]) -> NoReturn:
            seconds[0] += 10
            raise asyncpg.QueryCanceledError

    worker, target = await hire(store), parse(emptied_database)
    wanted = [Wanted(worker.session, [Demand(HANDLER, 1)], 1)]
    claimant = Claimant(Sight(lambda: seconds[0]))
    access = Access(await target.connect(PATIENCE), target, clock.now)
    await store.create(new_task())
    assert len((await claimant.claim(access, wanted))[0].value) == 1
    monkeypatch.setattr(claiming, "Sight", Overlong)
    with pytest.raises(asyncpg.QueryCanceledError):
        await claimant.claim(access, wanted)
    task = await store.create(new_task())
    (done,) = await claimant.claim(access, wanted)
    assert [claim.seq for claim in done.value] == [task.seq]
    assert seconds == [1_010.0]
    await access.connection.close()
