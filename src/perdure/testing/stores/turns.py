"""Who is served next: handlers by priority, tenants in turn, and within a tenant what has been due longest."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from perdure.domain.model import Claim, Demand, Owner
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import HANDLER, hire, new_task, take

OTHER = "tools/call:other"


async def fill(store: Store, name: str = "report", /, **counts: int) -> None:
    """So many tasks of each tenant, one tenant after the other."""
    for tenant, count in counts.items():
        owner = Owner(tenant, "ada")
        await asyncio.gather(*(store.create(new_task(name, owner=owner)) for _ in range(count)))


async def claim(store: Store, *demands: Demand, limit: int = 10_000) -> tuple[Claim, ...]:
    return await store.claim((await hire(store)).session, demands, limit)


def tenants(claims: tuple[Claim, ...]) -> str:
    return "".join(claim.task.owner.tenant for claim in claims)


async def test_tenants_are_served_in_turn_in_the_order_of_their_names(store: Store) -> None:
    await fill(store, c=3, a=3, b=3)
    assert tenants(await claim(store, Demand(HANDLER, 7))) == "abcabca"


async def test_a_tenant_with_few_runs_leaves_its_share_to_the_others(store: Store) -> None:
    await fill(store, a=4, b=1, c=2)
    assert tenants(await claim(store, Demand(HANDLER, 10))) == "abcacaa"


async def test_of_ten_tenants_each_gets_an_equal_share_though_one_has_a_thousand_runs(store: Store) -> None:
    await fill(store, **{letter: 1_000 if letter == "a" else 30 for letter in "abcdefghij"})
    assert set(Counter(tenants(await claim(store, Demand(HANDLER, 50)))).values()) == {5}
    assert set(Counter(tenants(await claim(store, Demand(HANDLER, 100)))).values()) == {10}
    rest = Counter(tenants(await claim(store, Demand(HANDLER, 200))))
    assert rest == {"a": 65, **dict.fromkeys("bcdefghij", 15)}


async def test_the_turn_goes_on_after_the_tenant_that_was_served_last(store: Store) -> None:
    await fill(store, a=9, b=9, c=9)
    after, served = None, ""
    for _ in range(7):
        (each,) = await claim(store, Demand(HANDLER, 1, after))
        after = each.task.owner.tenant
        served += after
    assert served == "abcabca"


async def test_the_turn_goes_round(store: Store) -> None:
    await fill(store, a=2, b=2, c=2)
    assert tenants(await claim(store, Demand(HANDLER, 4, "b"))) == "cabc"
    assert tenants(await claim(store, Demand(HANDLER, 4, "c"))) == "ab"


@pytest.mark.parametrize(("after", "first"), [(None, "b"), ("", "b"), ("a", "b"), ("b", "d"), ("c", "d"), ("z", "b")])
async def test_the_tenant_that_was_served_last_need_not_be_there_any_more(
    store: Store, after: str | None, first: str
) -> None:
    await fill(store, b=1, d=1)
    assert tenants(await claim(store, Demand(HANDLER, 1, after))) == first


async def test_one_tenant_alone_gets_everything(store: Store) -> None:
    await fill(store, a=5)
    assert tenants(await claim(store, Demand(HANDLER, 3, "a"))) == "aaa"


async def test_within_a_tenant_the_run_that_has_been_due_longest_is_first(store: Store, clock: VirtualClock) -> None:
    seqs: dict[str, list[int]] = {"a": [], "b": []}
    for tenant in "baab":
        seqs[tenant].append((await store.create(new_task(owner=Owner(tenant, "ada")))).seq)
        clock.advance(1)
    (first,) = await claim(store, Demand(HANDLER, 1))
    await store.release(first)
    claims = await claim(store, Demand(HANDLER, 10))
    assert [each.seq for each in claims] == [seqs["a"][1], seqs["b"][0], seqs["a"][0], seqs["b"][1]]


async def test_the_run_that_has_been_due_longest_comes_first_though_its_number_is_larger(
    store: Store, clock: VirtualClock
) -> None:
    older = await store.create(new_task())
    clock.advance(1)
    newer = await store.create(new_task())
    (held,) = await claim(store, Demand(HANDLER, 1), limit=1)
    assert held.seq == older.seq < newer.seq
    clock.advance(1)
    await store.release(held)
    (each,) = await claim(store, Demand(HANDLER, 1), limit=1)
    assert each.seq == newer.seq


async def test_the_name_of_a_tenant_may_be_any_text(store: Store) -> None:
    names = ["", "a", "a b", "ä", "租户", "🦊"]
    for name in names:
        await store.create(new_task(owner=Owner(name, "ada")))
    assert [each.task.owner.tenant for each in await claim(store, Demand(HANDLER, 10))] == names


async def test_principals_of_one_tenant_share_its_turn(store: Store) -> None:
    for principal in ("ada", "bob", "eve"):
        await store.create(new_task(owner=Owner("a", principal)))
    await fill(store, b=2)
    assert tenants(await claim(store, Demand(HANDLER, 4))) == "abab"


async def test_no_more_of_a_handler_is_claimed_than_it_demands(store: Store) -> None:
    await fill(store, a=5, b=5)
    await fill(store, "other", a=5)
    claims = await claim(store, Demand(OTHER, 2), Demand(HANDLER, 3))
    assert [each.operation.name for each in claims] == ["other"] * 2 + ["report"] * 3
    assert tenants(claims) == "aaaba"


async def test_no_more_is_claimed_in_all_than_the_limit_and_what_is_demanded_first_comes_first(store: Store) -> None:
    await fill(store, a=5, b=5)
    await fill(store, "other", a=5)
    claims = await claim(store, Demand(OTHER, 4), Demand(HANDLER, 4), limit=5)
    assert [each.operation.name for each in claims] == ["other"] * 4 + ["report"]
    claims = await claim(store, Demand(HANDLER, 4), Demand(OTHER, 4), limit=4)
    assert {each.operation.name for each in claims} == {"report"}


async def test_what_a_handler_does_not_use_of_the_limit_is_left_to_the_next(store: Store) -> None:
    await fill(store, "other", a=1)
    await fill(store, a=5)
    assert len(await claim(store, Demand(OTHER, 4), Demand(HANDLER, 4), limit=4)) == 4


async def test_each_handler_has_a_turn_of_its_own(store: Store) -> None:
    await fill(store, a=2, b=2)
    await fill(store, "other", a=2, b=2)
    claims = await claim(store, Demand(HANDLER, 2, "a"), Demand(OTHER, 2, "b"))
    assert tenants(claims) == "baab"


@pytest.mark.parametrize(("limit", "total"), [(0, 10), (10, 0), (-1, 10), (10, -1)])
async def test_nothing_is_claimed_where_nothing_is_demanded(store: Store, limit: int, total: int) -> None:
    await fill(store, a=2, b=2)
    assert await claim(store, Demand(HANDLER, limit), limit=total) == ()


async def test_runs_that_are_held_or_wait_take_no_turn(store: Store) -> None:
    await fill(store, a=1, b=1, c=1)
    assert tenants(await claim(store, Demand(HANDLER, 1))) == "a"
    assert tenants(await claim(store, Demand(HANDLER, 1))) == "b"
    assert tenants(await claim(store, Demand(HANDLER, 5, "b"))) == "c"


async def test_all_runs_of_one_call_share_a_fence(store: Store) -> None:
    await fill(store, a=2, b=2)
    await fill(store, "other", a=2)
    first = await claim(store, Demand(HANDLER, 3), Demand(OTHER, 3))
    assert len({each.fence for each in first}) == 1
    later = await take(store)
    assert later is not None
    assert later.fence > first[0].fence


async def test_a_version_of_a_tool_is_a_handler_of_its_own(store: Store) -> None:
    new = new_task()
    await store.create(replace(new, operation=replace(new.operation, version="2")))
    assert await claim(store, Demand(HANDLER, 1)) == ()
    (each,) = await claim(store, Demand(f"{HANDLER}@2", 1))
    assert each.operation.version == "2"
    assert await store.get(each.task.owner, each.task.id) == each.task
