"""The bound of what may wait: kept in all and for each tenant, at the price of a look now and then."""

import asyncio
from dataclasses import dataclass

import pytest

from perdure.domain.errors import BacklogFull, StoreUnavailable
from perdure.domain.model import Completed, Demand, Owner
from perdure.engine.backlog import Backlog
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.support import HANDLER, HOUR
from tests.store.support import new_task
from tests.support import eventually

ADA = Owner("acme", "ada")


@dataclass
class Bounds:
    backlog: int | None = None
    tenant_backlog: int | None = None
    owner_tasks: int | None = None


class Ticks:
    """A monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def backlog(store: Store, ticks: Ticks, bounds: Bounds) -> Backlog:
    return Backlog(lambda: store, lambda: bounds, ticks)


async def waiting(store: Store, count: int, tenant: str = "acme") -> None:
    for _ in range(count):
        await store.create(new_task(owner=Owner(tenant, "ada")))


async def admitted(gauge: Backlog, tenant: str = "acme", *, most: int = 20) -> int:
    """How many are admitted before one is refused."""
    for count in range(most):
        try:
            await gauge.admit(Owner(tenant, "ada"))
        except BacklogFull:
            return count
    return most


async def test_tasks_are_admitted_up_to_the_bound_that_counts_what_waits_already(store: Store, ticks: Ticks) -> None:
    await waiting(store, 3)
    gauge = backlog(store, ticks, Bounds(backlog=5))
    assert await admitted(gauge) == 2
    with pytest.raises(BacklogFull) as refused:
        await gauge.admit(ADA)
    assert refused.value.retry_after_ms > 0


async def test_the_bound_in_all_counts_every_tenant(store: Store, ticks: Ticks) -> None:
    await waiting(store, 2, "acme")
    await waiting(store, 2, "blue")
    assert await admitted(backlog(store, ticks, Bounds(backlog=5)), "cyan") == 1


async def test_the_bound_of_a_tenant_is_no_other_tenants(store: Store, ticks: Ticks) -> None:
    await waiting(store, 2, "acme")
    gauge = backlog(store, ticks, Bounds(tenant_backlog=3))
    assert (await admitted(gauge, "acme"), await admitted(gauge, "blue")) == (1, 3)


async def test_whichever_bound_is_reached_first_counts(store: Store, ticks: Ticks) -> None:
    gauge = backlog(store, ticks, Bounds(backlog=4, tenant_backlog=3))
    assert (await admitted(gauge, "acme"), await admitted(gauge, "blue")) == (3, 1)


async def test_what_is_waiting_is_looked_up_again_after_a_quarter_of_a_second_and_not_before(
    rigged: Rigged, ticks: Ticks
) -> None:
    await waiting(rigged, 2)
    gauge = backlog(rigged, ticks, Bounds(backlog=2))
    assert await admitted(gauge) == 0
    session = await rigged.open_session(HOUR, {})
    await rigged.claim(session.id, [Demand(HANDLER, 2)], 2)
    ticks.now += 0.249
    assert (await admitted(gauge), rigged.calls.count("backlog")) == (0, 1)
    ticks.now += 0.002
    assert (await admitted(gauge), rigged.calls.count("backlog")) == (2, 2)


async def test_what_runs_or_sleeps_does_not_wait(store: Store, ticks: Ticks) -> None:
    await waiting(store, 2)
    session = await store.open_session(HOUR, {})
    await store.claim(session.id, [Demand(HANDLER, 1)], 1)
    assert await admitted(backlog(store, ticks, Bounds(backlog=3))) == 2


async def test_without_bounds_nothing_is_looked_up_and_everything_admitted(rigged: Rigged, ticks: Ticks) -> None:
    assert await admitted(backlog(rigged, ticks, Bounds())) == 20
    assert rigged.calls == []


async def test_a_bound_that_is_set_later_counts_from_then_on(store: Store, ticks: Ticks) -> None:
    bounds = Bounds()
    gauge = backlog(store, ticks, bounds)
    await gauge.admit(ADA)
    bounds.backlog = 1
    assert await admitted(gauge) == 1


async def test_many_at_once_are_bounded_by_one_look(rigged: Rigged, ticks: Ticks) -> None:
    """Also those that come while the look is under way."""
    gauge = backlog(rigged, ticks, Bounds(backlog=5))
    gate = rigged.gate_before("backlog")
    admitting = [asyncio.create_task(gauge.admit(ADA)) for _ in range(20)]
    await gate.reached()
    gate.open()
    answers = await asyncio.gather(*admitting, return_exceptions=True)
    assert (answers.count(None), rigged.calls.count("backlog")) == (5, 1)


async def test_a_store_that_can_not_be_asked_admits_nobody(rigged: Rigged, ticks: Ticks) -> None:
    rigged.fail("backlog", 1)
    gauge = backlog(rigged, ticks, Bounds(backlog=5))
    with pytest.raises(StoreUnavailable):
        await gauge.admit(ADA)
    assert (await admitted(gauge), rigged.calls.count("backlog")) == (5, 2)


async def test_the_bound_of_a_tenant_holds_by_itself_however_much_others_have(store: Store, ticks: Ticks) -> None:
    await waiting(store, 9, "acme")
    gauge = backlog(store, ticks, Bounds(tenant_backlog=3))
    for _ in range(2):
        assert (await admitted(gauge, "zoo"), await admitted(gauge, "acme")) == (3, 0)
        ticks.now += 1


async def test_what_is_done_since_the_last_look_counts_no_more_and_nobody_is_refused_for_it(
    rigged: Rigged, ticks: Ticks
) -> None:
    """One call after the other, each done before the next."""
    gauge = backlog(rigged, ticks, Bounds(backlog=100, tenant_backlog=2))
    session = await rigged.open_session(HOUR, {})
    for _ in range(10):
        await gauge.admit(ADA)
        await gauge.create(new_task(owner=Owner("acme", "ada")))
        (claim,) = await rigged.claim(session.id, [Demand(HANDLER, 1)], 1)
        await rigged.finish(claim, Completed({}))
        ticks.now += 0.001
    assert rigged.calls.count("backlog") < 10


async def test_a_look_that_found_too_many_stands_for_a_while(rigged: Rigged, ticks: Ticks) -> None:
    await waiting(rigged, 2)
    gauge = backlog(rigged, ticks, Bounds(backlog=2))
    for _ in range(20):
        assert await admitted(gauge) == 0
        ticks.now += 0.01
    assert rigged.calls.count("backlog") == 1


@pytest.mark.parametrize(
    "bounds",
    [Bounds(backlog=1), Bounds(tenant_backlog=1), Bounds(owner_tasks=1)],
    ids=["in all", "of a tenant", "of an owner"],
)
async def test_what_is_being_created_counts_in_every_look(rigged: Rigged, ticks: Ticks, bounds: Bounds) -> None:
    gauge = backlog(rigged, ticks, bounds)
    await gauge.admit(ADA)
    gate = rigged.gate_before("create")
    creating = asyncio.create_task(gauge.create(new_task(owner=Owner("acme", "ada"))))
    await gate.reached()
    ticks.now += 1
    assert await admitted(gauge) == 0
    gate.open()
    await creating
    ticks.now += 1
    assert await admitted(gauge) == 0


@pytest.mark.parametrize("bounds", [Bounds(backlog=2), Bounds(tenant_backlog=2), Bounds(owner_tasks=2)])
async def test_nobody_is_refused_for_what_is_in_the_store_and_being_created_at_once(
    rigged: Rigged, ticks: Ticks, bounds: Bounds
) -> None:
    """Between the commit and the caller's hearing of it."""
    gauge = backlog(rigged, ticks, bounds)
    await gauge.admit(ADA)
    gate = rigged.gate_after("create")
    creating = asyncio.create_task(gauge.create(new_task(owner=Owner("acme", "ada"))))
    await gate.reached()
    ticks.now += 1
    admitting = asyncio.create_task(gauge.admit(ADA))
    await eventually(lambda: rigged.calls.count("backlog") + rigged.calls.count("unfinished") == 2, "nobody looked")
    gate.open()
    await asyncio.gather(creating, admitting)
    with pytest.raises(BacklogFull):
        await gauge.admit(ADA)


async def test_where_it_stays_unknown_what_comes_one_waits_and_not_each(rigged: Rigged, ticks: Ticks) -> None:
    gauge = backlog(rigged, ticks, Bounds(owner_tasks=1))
    await gauge.admit(ADA)
    gate = rigged.gate_before("create")
    creating = asyncio.create_task(gauge.create(new_task(owner=Owner("acme", "ada"))))
    await gate.reached()
    ticks.now += 1
    refused = await asyncio.gather(*(gauge.admit(ADA) for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in refused} == {BacklogFull}
    assert rigged.calls.count("unfinished") == 3  # the first of all, and of these one before the wait and one after
    gate.open()
    await creating


async def test_the_bound_of_an_owner_counts_all_that_it_has_unfinished_and_nobody_elses(
    store: Store, ticks: Ticks
) -> None:
    await waiting(store, 2)
    session = await store.open_session(HOUR, {})
    await store.claim(session.id, [Demand(HANDLER, 1)], 1)
    gauge = backlog(store, ticks, Bounds(owner_tasks=3))
    await gauge.admit(ADA)
    with pytest.raises(BacklogFull, match="unfinished"):
        await gauge.admit(ADA)
    for other in (Owner("acme", "bob"), Owner("blue", "ada")):
        await gauge.admit(other)


async def test_the_bound_of_an_owner_is_none_for_those_who_are_not_counted(rigged: Rigged, ticks: Ticks) -> None:
    gauge = backlog(rigged, ticks, Bounds(owner_tasks=1))
    for _ in range(3):
        await gauge.admit(ADA, counted=False)
    assert rigged.calls == []


async def test_a_look_for_one_owner_holds_up_no_other(rigged: Rigged, ticks: Ticks) -> None:
    gauge = backlog(rigged, ticks, Bounds(owner_tasks=1))
    gate = rigged.gate_before("unfinished")
    first = asyncio.create_task(gauge.admit(ADA))
    await gate.reached()
    await gauge.admit(Owner("acme", "bob"))
    gate.open()
    await first


async def test_looks_that_take_longer_than_they_count_for_admit_all_the_same(rigged: Rigged, ticks: Ticks) -> None:
    """A database that is overloaded must not be asked again and again."""
    gauge = backlog(rigged, ticks, Bounds(backlog=10, tenant_backlog=10, owner_tasks=10))
    gates = [rigged.gate_before(verb) for verb in ("backlog", "backlog", "unfinished")]
    admitting = asyncio.create_task(gauge.admit(ADA))
    for gate in gates:
        await gate.reached()
        ticks.now += 0.3
        gate.open()
    await admitting
    assert rigged.calls.count("backlog") + rigged.calls.count("unfinished") == 3


async def test_those_that_were_admitted_during_a_later_look_count(rigged: Rigged, ticks: Ticks) -> None:
    """One owner's look is under way when others take what was left for all."""
    gauge = backlog(rigged, ticks, Bounds(backlog=2, owner_tasks=10))
    gate = rigged.gate_before("unfinished")
    slow = asyncio.create_task(gauge.admit(ADA))
    await gate.reached()
    for name in ("bob", "cyd"):
        await gauge.admit(Owner("acme", name), counted=False)
    gate.open()
    with pytest.raises(BacklogFull):
        await slow


async def test_time_is_the_machines_unless_told_otherwise(store: Store) -> None:
    gauge = Backlog(lambda: store, lambda: Bounds(backlog=1))
    await gauge.admit(ADA)
    await gauge.create(new_task())
    with pytest.raises(BacklogFull):
        await gauge.admit(ADA)
