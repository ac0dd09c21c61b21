"""Replicas that do things at once: each thing is done once, nothing is slept through, and nobody deadlocks.

Every test has real stores on one real database, and as much at the same time as their connections carry.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.domain.errors import (
    IdempotencyKeyReused,
    InputKeyReused,
    LeaseLost,
    TaskExpired,
    TaskNotFound,
)
from perdure.domain.model import Claim, Demand, Status
from perdure.domain.timeline import EventKind
from perdure.store.postgres import PostgresStore
from perdure.testing import VirtualClock
from perdure.testing.postgresql import Cluster
from perdure.testing.stores.support import (
    ADA,
    DONE,
    HANDLER,
    LEASE,
    NAME,
    Worker,
    asks,
    both,
    hire,
    new_task,
    running,
    sleep,
    step,
)
from tests.store.contender import contend
from tests.store.contest import ROUNDS, arranged, judge
from tests.support import PATIENCE

pytestmark = pytest.mark.usefixtures("no_deadlocks")

Refused = (IdempotencyKeyReused, InputKeyReused, LeaseLost, TaskExpired, TaskNotFound)
"""What one may hear who comes too late. Not that the store is unavailable: it never has to be."""


@pytest.fixture
def no_deadlocks(postgres: Cluster) -> Any:
    """What a deadlock costs is a second; that it was retried would hide it."""
    before = postgres.log.read_text().count("deadlock detected")
    yield
    assert postgres.log.read_text().count("deadlock detected") == before


@asynccontextmanager
async def replicas(url: str, count: int, clock: VirtualClock) -> AsyncGenerator[list[PostgresStore]]:
    stores = [PostgresStore(url, clock, lanes=2) for _ in range(count)]
    try:
        await asyncio.gather(*(store.open() for store in stores))
        async with asyncio.timeout(PATIENCE):
            yield stores
    finally:
        await asyncio.gather(*(store.close() for store in stores))


@pytest.fixture
async def two(emptied_database: str, clock: VirtualClock) -> Any:
    async with replicas(emptied_database, 2, clock) as stores:
        yield stores


@pytest.fixture
async def four(emptied_database: str, clock: VirtualClock) -> Any:
    async with replicas(emptied_database, 4, clock) as stores:
        yield stores


async def tried(verb: Awaitable[Any]) -> Any:
    """What came of it, or that it came too late."""
    try:
        return await verb
    except Refused as error:
        return error


async def in_any_order(*verbs: Callable[[], Awaitable[Any]]) -> list[Any]:
    """All at once; who begins is left to chance, and so is who gets a moment ahead of the others."""
    order = random.sample(range(len(verbs)), len(verbs))

    async def one(number: int) -> Any:
        for _ in range(random.choice((0, 0, 1, 5, 20))):
            await asyncio.sleep(0)
        return await tried(verbs[number]())

    done = dict(zip(order, await asyncio.gather(*map(one, order)), strict=True))
    return [done[number] for number in range(len(verbs))]


# -- a run and whoever wants something of its task ---------------------------------------------------------------------


async def test_two_who_do_the_same_at_once_are_both_served_and_one_of_them_wins(two: list[PostgresStore]) -> None:
    store, other = two
    contest = await arranged(store)
    mine, theirs = await asyncio.gather(contend(store, "one", contest), contend(other, "other", contest))
    await judge(store, contest, mine, theirs)


async def test_an_answer_that_comes_while_the_run_is_put_aside_again_is_not_slept_through(
    two: list[PostgresStore], clock: VirtualClock
) -> None:
    store, other = two
    worker = await hire(store, 1_000_000)
    for _ in range(ROUNDS):
        task = await store.create(new_task())
        await store.park(await worker.claim_one(), both(asks(name=NAME), sleep(1)))
        clock.advance(1)
        again = await worker.claim_one()  # the question is still open
        await in_any_order(
            lambda claim=again: store.park(claim, asks(name=NAME)),
            lambda task_id=task.id: other.answer(ADA, task_id, {"name": "Ada"}),
        )
        answered = await worker.claim_one()
        assert (await store.journal(answered)).questions["name"].response == "Ada"
        await store.finish(answered, DONE)


async def test_a_request_to_cancel_comes_before_the_end_or_after_it(two: list[PostgresStore]) -> None:
    store, other = two
    for _ in range(ROUNDS):
        claim = await running(store)
        finished, asked = await in_any_order(
            lambda claim=claim: store.finish(claim, DONE),
            lambda task_id=claim.task.id: other.request_cancel(ADA, task_id),
        )
        assert finished.status is Status.COMPLETED
        assert (asked.status, asked.cancel_requested) in [(Status.COMPLETED, False), (Status.WORKING, True)]
        inspection = await store.inspect(claim.task.id)
        assert inspection.task == finished
        assert inspection.run is None
        assert len(inspection.events) == int(finished.cancel_requested)


async def test_a_task_is_cancelled_before_it_is_claimed_or_its_worker_hears_of_it(two: list[PostgresStore]) -> None:
    store, other = two
    worker = await hire(store)
    for _ in range(ROUNDS):
        task = await other.create(new_task())
        claims, asked = await in_any_order(worker.claim, lambda task_id=task.id: other.request_cancel(ADA, task_id))
        if asked.status is Status.CANCELLED:
            assert claims == ()
            continue
        (claim,) = claims
        assert (await store.renew(worker.session, LEASE)).cancelled == {claim.seq}
        await store.finish(claim, DONE)


async def test_two_that_claim_at_once_get_no_run_twice_and_leave_none(two: list[PostgresStore]) -> None:
    tasks = await asyncio.gather(*(two[0].create(new_task()) for _ in range(200)))
    workers = [await hire(store) for store in two for _ in range(2)]

    async def work(worker: Worker) -> list[Claim]:
        got: list[Claim] = []
        while len(taken) < len(tasks):
            claims = await worker.claim(random.randint(1, 9))
            got += claims
            taken.extend(claim.seq for claim in claims)
        return got

    taken: list[int] = []
    shares = await asyncio.gather(*map(work, workers))
    assert sorted(taken) == sorted(task.seq for task in tasks)
    for worker, share in zip(workers, shares, strict=True):
        for claim in share[:3]:
            run = (await two[0].inspect(claim.task.id)).run
            assert run is not None
            assert (run.session, run.fence) == (worker.session, claim.fence)


# -- sessions that end -------------------------------------------------------------------------------------------------


async def test_of_many_that_take_over_at_once_each_run_is_freed_by_one(
    four: list[PostgresStore], clock: VirtualClock
) -> None:
    worker = await hire(four[0])
    await asyncio.gather(*(four[0].create(new_task()) for _ in range(40)))
    claims = await worker.claim(40)
    clock.advance(LEASE)
    counts = await in_any_order(*(store.take_over for store in four for _ in range(3)))
    assert sum(counts) == len(claims) == 40
    for claim in claims[:5]:
        events = (await four[1].inspect(claim.task.id)).events
        assert [event.kind for event in events] == [EventKind.DEATH]
    assert {claim.deaths for claim in await (await hire(four[2])).claim(40)} == {1}


async def test_nothing_is_left_with_a_session_that_is_taken_over_while_it_claims_and_renews(
    two: list[PostgresStore],
) -> None:
    store, other = two
    for _ in range(ROUNDS):
        worker = await hire(store)
        await asyncio.gather(*(store.create(new_task()) for _ in range(3)))
        claims, renewed, freed = await in_any_order(
            worker.claim, lambda w=worker: store.renew(w.session, LEASE), lambda w=worker: other.take_over([w.session])
        )
        assert freed == (0 if isinstance(claims, LeaseLost) else len(claims))
        assert isinstance(renewed, LeaseLost) or renewed.cancelled == frozenset()
        (load,) = await store.loads()
        assert (load.ready, load.held) == (3, 0)
        last = await hire(other)
        for claim in await last.claim(3):
            await other.finish(claim, DONE)


async def test_what_a_worker_gives_back_as_its_session_ends_is_given_back_once(two: list[PostgresStore]) -> None:
    store, other = two
    for _ in range(ROUNDS):
        worker = await hire(store)
        task = await store.create(new_task())
        claim = await worker.claim_one()
        await in_any_order(
            lambda c=claim: store.release(c),
            lambda w=worker: store.close_session(w.session),
            lambda w=worker: other.take_over([w.session]),
        )
        run = (await other.inspect(task.id)).run
        assert run is not None
        assert run.session is None
        assert run.deaths in (0, 1)
        await other.request_cancel(ADA, task.id)


# -- housekeeping ------------------------------------------------------------------------------------------------------


async def test_of_many_that_expire_at_once_each_task_is_failed_by_one(
    four: list[PostgresStore], clock: VirtualClock
) -> None:
    tasks = await asyncio.gather(*(four[0].create(new_task(ttl_ms=1_000)) for _ in range(40)))
    clock.advance(1_000)
    counts = await in_any_order(*(lambda store=store: store.expire(25) for store in four for _ in range(2)))
    counts.append(await four[0].expire(100))
    assert sum(counts) == 40
    assert {(await four[1].get(ADA, task.id)).version for task in tasks[:5]} == {2}


async def test_of_many_that_purge_at_once_each_task_is_deleted_by_one(
    four: list[PostgresStore], clock: VirtualClock
) -> None:
    tasks = await asyncio.gather(*(four[0].create(new_task(ttl_ms=1_000)) for _ in range(40)))
    clock.advance(1_000)
    assert await four[0].expire(100) == 40

    async def purge(store: PostgresStore, limit: int) -> int:
        return await store.purge(limit, linger_ms=0, tombstone_ms=1_000)

    counts = await in_any_order(*(lambda store=store: purge(store, 25) for store in four for _ in range(2)))
    counts.append(await purge(four[0], 100))
    assert sum(counts) == 40
    for task in tasks[:5]:
        with pytest.raises(TaskExpired):
            await four[1].get(ADA, task.id)


async def test_of_many_that_free_what_is_overdue_at_once_each_run_is_freed_by_one(
    four: list[PostgresStore], clock: VirtualClock
) -> None:
    worker = await hire(four[0])
    await asyncio.gather(*(four[0].create(new_task(timeout_ms=1_000)) for _ in range(40)))
    await worker.claim(40)
    clock.advance(1_001)
    counts = await in_any_order(
        *(lambda store=store: store.free_overdue(25, late_ms=0) for store in four for _ in range(2))
    )
    counts.append(await four[0].free_overdue(100, late_ms=0))
    assert sum(counts) == 40


# -- making the same task ----------------------------------------------------------------------------------------------


async def test_a_task_that_is_made_by_several_at_once_is_one(four: list[PostgresStore]) -> None:
    for _ in range(ROUNDS):
        new = new_task()
        made = await in_any_order(*(lambda store=store, new=new: store.create(new) for store in four))
        assert len({task.seq for task in made}) == 1
        assert len(await (await hire(four[0])).claim(10)) == 1


async def test_a_call_that_is_made_by_several_at_once_under_one_key_is_one_task(four: list[PostgresStore]) -> None:
    for number in range(ROUNDS):
        key = f"key {number}"
        made = await in_any_order(
            *(lambda store=store, key=key: store.create(new_task(key=key, digest="d")) for store in four)
        )
        assert len({task.id for task in made}) == 1
        assert len(await (await hire(four[0])).claim(10)) == 1


async def test_calls_under_the_same_keys_in_any_order_do_not_wait_for_each_other(four: list[PostgresStore]) -> None:
    keys = [f"key {number}" for number in range(40)]

    async def call(store: PostgresStore) -> list[str]:
        order = random.sample(keys, len(keys))
        tasks = await asyncio.gather(*(store.create(new_task(key=key, digest="d")) for key in order))
        return [task.id for _, task in sorted(zip(order, tasks, strict=True), key=lambda pair: pair[0])]

    made = await asyncio.gather(*map(call, four))
    assert all(ids == made[0] for ids in made)
    assert len(set(made[0])) == len(keys)


# -- everything --------------------------------------------------------------------------------------------------------


class Crowd:
    """Operations that chance chooses, on few tasks, so that they meet."""

    def __init__(self, stores: list[PostgresStore], clock: VirtualClock, workers: list[Worker]) -> None:
        self.stores = stores
        self.clock = clock
        self.workers = workers
        self.ids: list[str] = []
        self.claims: list[Claim] = []
        self.heard = Counter[str]()

    async def one(self) -> None:
        store, verb = random.choice(self.stores), random.choice(self.verbs())
        done = await tried(verb(store))
        name = type(done).__name__ if isinstance(done, Refused) else "done"
        self.heard[name] += 1

    def verbs(self) -> list[Callable[[PostgresStore], Awaitable[Any]]]:
        return [
            self.create, self.claim, self.claim, self.claim, self.answer, self.answer, self.cancel, self.park,
            self.park, self.record, self.retry, self.finish, self.release, self.look, self.house,
        ]  # fmt: skip

    async def create(self, store: PostgresStore) -> None:
        key = random.choice((None, "one", "other"))
        new = new_task(
            ttl_ms=random.choice((None, 3_000)), timeout_ms=random.choice((None, 1_000)), key=key, digest="d"
        )
        self.ids.append((await store.create(new)).id)

    async def claim(self, store: PostgresStore) -> None:
        worker = random.choice(self.workers)
        self.claims += await store.claim(worker.session, [Demand(HANDLER, 5)], 5)

    def some_claim(self) -> Claim:
        if not self.claims:
            raise LeaseLost
        return random.choice(self.claims[-12:])

    def some_id(self) -> str:
        return random.choice(self.ids[-12:])

    async def answer(self, store: PostgresStore) -> None:
        await store.answer(ADA, self.some_id(), {"name": "Ada"})

    async def cancel(self, store: PostgresStore) -> None:
        if random.random() < 0.3:
            await store.request_cancel(ADA, self.some_id())

    async def park(self, store: PostgresStore) -> None:
        await store.park(self.some_claim(), random.choice((asks(name=NAME), both(asks(name=NAME), sleep(500)))))

    async def record(self, store: PostgresStore) -> None:
        await store.record(self.some_claim(), step(str(random.randint(0, 3))))

    async def retry(self, store: PostgresStore) -> None:
        await store.retry(self.some_claim(), 100, "no", failed=["1"])

    async def finish(self, store: PostgresStore) -> None:
        await store.finish(self.some_claim(), DONE)

    async def release(self, store: PostgresStore) -> None:
        await store.release(self.some_claim())

    async def look(self, store: PostgresStore) -> None:
        await store.get(ADA, self.some_id())

    async def house(self, store: PostgresStore) -> None:
        self.clock.advance(200)
        dead = random.randrange(len(self.workers))
        match random.randrange(7):
            case 0:
                await store.take_over([self.workers[dead].session])
                self.workers[dead] = await hire(store)
            case 1:
                await store.close_session(self.workers[dead].session)
                self.workers[dead] = await hire(store)
            case 2:
                await store.expire(5)
            case 3:
                await store.free_overdue(5, late_ms=0)
            case 4:
                await store.purge(5, linger_ms=0, tombstone_ms=500)
            case 5:
                held = (await store.renew(self.workers[dead].session, LEASE)).held
                await store.give_back(self.workers[dead].session, held)
            case _:
                await store.renew(self.workers[dead].session, LEASE)


async def test_a_thousand_operations_at_random_by_four_replicas_leave_everything_sound(
    four: list[PostgresStore], clock: VirtualClock
) -> None:
    seed = random.randrange(sys.maxsize)
    print(f"seed {seed}")  # what pytest shows of a failure; the order in which the server serves is its own
    random.seed(seed)
    crowd = Crowd(four, clock, [await hire(store) for store in four for _ in range(2)])
    await crowd.create(four[0])

    async def stroll() -> None:
        for _ in range(40):
            await crowd.one()

    await asyncio.gather(*(stroll() for _ in range(25)))
    assert crowd.heard["done"] > 300, crowd.heard
    alive = {session.id for session, _ in await four[0].sessions()}
    for task_id in set(crowd.ids):
        try:
            seen = await four[0].inspect(task_id)
        except TaskNotFound:
            continue  # purged
        assert (seen.run is None) == seen.task.status.terminal
        assert seen.run is None or seen.run.session is None or seen.run.session in alive
        assert (seen.task.status is Status.INPUT_REQUIRED) == bool(seen.task.inputs)
