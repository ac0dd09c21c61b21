"""A row that no store has written concerns nobody but its task: the others are kept, claimed, changed and ended.

SQLite's are in `tests/store/test_damage.py`. Here somebody's hand in the database does what a disk may.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.domain.errors import TaskNotFound, Unreadable
from perdure.domain.journal import EntryState
from perdure.domain.model import Demand, Status
from perdure.store.base import PUT_OFF
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.access import Access
from perdure.store.postgres.claiming import Claimant, Wanted
from perdure.store.postgres.url import Connection, parse
from perdure.testing import VirtualClock
from perdure.testing.stores.support import (
    ADA,
    BOB,
    DONE,
    HANDLER,
    NOW,
    TOKEN,
    elsewhere,
    hire,
    new_task,
    parked,
    running,
    step,
    waiting,
)
from tests.support import PATIENCE

DAMAGE = ("status = 'elsewhere'", "ttl_ms = -1", "keep_ms = 9223372036854775807")

damaged = pytest.mark.parametrize("damage", DAMAGE)


@pytest.fixture
async def store(database: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    """One connection, so that whatever is asked at once waits for it, and is one batch."""
    store = PostgresStore(database, clock, lanes=1)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def outside(database: str) -> AsyncIterator[Connection]:
    """A connection that is nobody's, for sabotage."""
    connection = await parse(database).connect_directly(PATIENCE)
    await connection.execute("ALTER TABLE perdure.task DROP CONSTRAINT task_status_check")
    yield connection
    await connection.close()


async def spoil(outside: Connection, seq: int, damage: str) -> None:
    await outside.execute(f"UPDATE perdure.task SET {damage} WHERE seq = $1", seq)


async def put_off(outside: Connection, seq: int) -> bool:
    """Whether nobody has the run, and it is due later, with no attempt and no death counted."""
    run = await outside.fetchrow("SELECT session, due_at, failures, deaths FROM perdure.run WHERE task_seq = $1", seq)
    assert run is not None
    return tuple(run) == (None, NOW + PUT_OFF, 0, 0)


@damaged
@pytest.mark.parametrize("end", ["take over", "close", "give back"])
async def test_who_takes_runs_from_a_worker_goes_on_past_a_damaged_row(
    store: PostgresStore, outside: Connection, damage: str, end: str
) -> None:
    worker = await hire(store)
    bad, sound = [await store.create(new_task()) for _ in range(2)]
    claims = await worker.claim(10)
    await spoil(outside, bad.seq, damage)
    match end:
        case "take over":
            assert await store.take_over([worker.session]) == 2
        case "close":
            await store.close_session(worker.session)
        case _:
            held = frozenset((each.seq, each.fence) for each in claims)
            assert await store.give_back(worker.session, held) == 2
            assert await store.give_back(worker.session, held) == 0
    assert await put_off(outside, bad.seq)
    (again,) = await (await hire(store)).claim(10)
    assert again.seq == sound.seq


@damaged
async def test_so_does_who_frees_what_is_overdue(
    store: PostgresStore, outside: Connection, clock: VirtualClock, damage: str
) -> None:
    worker = await hire(store)
    bad, sound = [await store.create(new_task(timeout_ms=1_000)) for _ in range(2)]
    await worker.claim(10)
    await spoil(outside, bad.seq, damage)
    clock.advance(1_001)
    assert await store.free_overdue(10, late_ms=0) == 2
    clock.advance(-1_001)
    assert await store.free_overdue(10, late_ms=0) == 0
    (load,) = await store.loads()
    assert (load.ready, load.held) == (1, 0)
    assert (await (await hire(store)).claim_one()).seq == sound.seq


@damaged
async def test_so_does_who_stops_what_is_past_its_ttl(
    store: PostgresStore, outside: Connection, clock: VirtualClock, damage: str
) -> None:
    bad, sound = [await store.create(new_task(ttl_ms=1_000)) for _ in range(2)]
    await spoil(outside, bad.seq, damage)
    clock.advance(1_000)
    assert await store.expire(10) == 1
    assert (await store.get(ADA, sound.id)).status is Status.FAILED
    assert await store.expire(10) == 0


@damaged
async def test_so_does_a_claim_that_gives_back_what_an_earlier_one_took_unheard(
    store: PostgresStore, outside: Connection, database: str, clock: VirtualClock, damage: str
) -> None:
    worker, target = await hire(store), parse(database)
    bad, sound = [await store.create(new_task()) for _ in range(2)]
    fence = (await worker.claim(2))[0].fence
    await spoil(outside, bad.seq, damage)
    claimant = Claimant(unsure={worker.session: [fence]})
    access = Access(await target.connect(PATIENCE), target, clock.now)
    (done,) = await claimant.claim(access, [Wanted(worker.session, [Demand(HANDLER, 10)], 10)])
    await access.connection.close()
    assert [claim.seq for claim in done.value] == [sound.seq]
    assert await put_off(outside, bad.seq)


@damaged
async def test_of_writes_in_one_batch_those_to_a_damaged_row_fail_alone(
    store: PostgresStore, outside: Connection, damage: str
) -> None:
    bad, sound = await running(store), await running(store)
    await spoil(outside, bad.seq, f"{damage}, version = version + 1")
    done = await asyncio.gather(
        store.report(bad, "half way"),
        store.record(bad, step()),
        store.finish(bad, DONE),
        store.finish(sound, DONE),
        return_exceptions=True,
    )
    assert [type(each) for each in done[:3]] == [Unreadable] * 3
    assert (await store.get(ADA, sound.task.id)).status is Status.COMPLETED


async def test_a_status_that_is_none_is_seen_though_nothing_else_has_changed(
    store: PostgresStore, outside: Connection
) -> None:
    """What a worker knows by its claim is not read again. But this no write of its would ever overwrite."""
    bad, sound = await running(store), await running(store)
    await spoil(outside, bad.seq, "status = 'elsewhere'")
    done = await asyncio.gather(store.finish(bad, DONE), store.finish(sound, DONE), return_exceptions=True)
    assert isinstance(done[0], Unreadable)
    assert (await store.get(ADA, sound.task.id)).status is Status.COMPLETED


@damaged
@pytest.mark.parametrize("over", [False, True])
async def test_of_those_who_want_something_of_a_damaged_task_only_whoever_may_have_it_hears_so(
    store: PostgresStore, outside: Connection, damage: str, *, over: bool
) -> None:
    bad, sound = await waiting(store, elsewhere()), await parked(store)
    if over:
        await store.request_cancel(ADA, bad.task.id)
    await spoil(outside, bad.seq, damage)
    task_id = bad.task.id
    done = await asyncio.gather(
        store.answer(ADA, task_id, {}),
        store.request_cancel(ADA, task_id),
        store.settle(task_id, "0", TOKEN, EntryState.DONE, None),
        store.request_cancel(BOB, task_id),
        store.settle(task_id, "0", "forged", EntryState.DONE, None),
        store.answer(ADA, sound.task.id, {"name": "Ada"}),
        return_exceptions=True,
    )
    assert [type(each) for each in done[:3]] == [Unreadable] * 3
    assert [type(each) for each in done[3:5]] == [TaskNotFound] * 2
    assert (await store.get(ADA, sound.task.id)).status is Status.WORKING


@damaged
async def test_an_operator_who_would_hurry_a_damaged_task_hears_that_it_can_not_be_read(
    store: PostgresStore, outside: Connection, damage: str
) -> None:
    task = await store.create(new_task())
    await spoil(outside, task.seq, damage)
    with pytest.raises(Unreadable):
        await store.hasten(task.id)
