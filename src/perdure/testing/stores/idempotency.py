"""Idempotency keys: a caller that does not know whether its call arrived may make it again."""

import asyncio
import random
from dataclasses import replace

import pytest

from perdure.domain.errors import IdempotencyKeyReused, NotStorable, TaskNotFound
from perdure.domain.limits import (
    MAX_IDEMPOTENCY_KEY,
    MAX_PLACE,
    MAX_PRINCIPAL,
    MAX_QUESTION_KEY,
    MAX_TENANT,
    MAX_TOOL_NAME,
)
from perdure.domain.model import Asked, Demand, Owner
from perdure.store.base import Store
from perdure.testing.clock import VirtualClock

from .support import (
    ADA,
    BOB,
    DONE,
    ELSEWHERE,
    NAME,
    Changes,
    asks,
    hire,
    new_task,
    running,
    step,
    take,
)

TTL = 60_000


async def test_what_is_part_of_a_key_is_kept_as_long_as_it_may_be(store: Store) -> None:
    """Of characters that take four bytes each, and in an order that no compression makes smaller."""
    chance = random.Random(7)

    def text(most: int, *, ascii: bool = False) -> str:
        first, last = (33, 127) if ascii else (0x10000, 0x20000)
        return "".join(chr(chance.randrange(first, last)) for _ in range(most))

    owner = Owner(text(MAX_TENANT, ascii=True), text(MAX_PRINCIPAL, ascii=True))
    new = new_task(text(MAX_TOOL_NAME), owner=owner, key=text(MAX_IDEMPOTENCY_KEY), digest="d")
    await store.create(new)
    assert (await store.create(replace(new, id=new_task().id))).id == new.id
    worker = await hire(store)
    (claim,) = await store.claim(worker.session, [Demand(new.operation.handler, 1)], 1)
    place, key = text(MAX_PLACE, ascii=True), text(MAX_QUESTION_KEY)
    await store.record(claim, step(place))
    await store.park(claim, asks(**{key: Asked(NAME, place)}))
    assert [question.key for question in (await store.get(owner, new.id)).inputs] == [key]
    assert set((await store.inspect(new.id)).journal.entries) == {place}


async def test_the_same_call_under_the_same_key_is_the_same_task_as_it_is_now(store: Store, changes: Changes) -> None:
    claim = await running(store, new_task(key="k", digest="d"))
    await store.report(claim, "halfway")
    changes.clear()
    again = await store.create(new_task(key="k", digest="d"))
    assert again == await store.get(ADA, claim.task.id)
    assert again.message == "halfway"
    assert changes == []
    assert await take(store) is None


async def test_the_id_of_a_repeated_call_is_not_taken(store: Store) -> None:
    await store.create(new_task(key="k", digest="d"))
    repeated = new_task(key="k", digest="d")
    await store.create(repeated)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, repeated.id)


async def test_another_call_under_the_same_key_is_refused_and_nothing_is_stored(store: Store, changes: Changes) -> None:
    await store.create(new_task(key="k", digest="d"))
    changes.clear()
    other = new_task(key="k", digest="other")
    with pytest.raises(IdempotencyKeyReused):
        await store.create(other)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, other.id)
    assert changes == []


async def test_an_id_that_stands_there_already_decides_before_the_key(store: Store) -> None:
    new = new_task(key="k", digest="d")
    created = await store.create(new)
    assert await store.create(replace(new, digest="other")) == created


async def test_owners_do_not_share_keys(store: Store) -> None:
    tasks = [await store.create(new_task(owner=owner, key="k", digest=owner.tenant)) for owner in (ADA, BOB, ELSEWHERE)]
    assert len({task.id for task in tasks}) == 3
    for owner, task in zip((ADA, BOB, ELSEWHERE), tasks, strict=True):
        assert await store.recall(owner, "k", owner.tenant) == task


async def test_keys_tell_calls_apart_and_calls_without_one_are_all_different(store: Store) -> None:
    new = [new_task(key="a", digest="d"), new_task(key="b", digest="d"), new_task(), new_task()]
    assert len({(await store.create(each)).id for each in new}) == 4


async def test_two_calls_at_once_make_one_task(store: Store, changes: Changes) -> None:
    tasks = await asyncio.gather(*(store.create(new_task(key="k", digest="d")) for _ in range(5)))
    assert len({task.id for task in tasks}) == 1
    assert len(changes) == 1


async def test_recalling_finds_what_the_key_stands_for_as_it_is_now(store: Store) -> None:
    assert await store.recall(ADA, "k", "d") is None
    claim = await running(store, new_task(key="k", digest="d"))
    assert await store.recall(ADA, "k", "d") == claim.task
    over = await store.finish(claim, DONE)
    assert await store.recall(ADA, "k", "d") == over
    assert await store.recall(ADA, "other", "d") is None
    assert await store.recall(BOB, "k", "d") is None


async def test_recalling_another_call_is_refused(store: Store) -> None:
    await store.create(new_task(key="k", digest="d"))
    with pytest.raises(IdempotencyKeyReused):
        await store.recall(ADA, "k", "other")


@pytest.mark.parametrize("text", ["\ud800", "\0"])
async def test_recalling_with_text_that_can_not_be_stored_finds_nothing(store: Store, text: str) -> None:
    assert await store.recall(ADA, text, "d") is None
    assert await store.recall(Owner("acme", text), "k", "d") is None
    assert await store.recall(Owner(text, "ada"), "k", "d") is None


async def test_a_key_is_free_again_once_its_task_was_purged(store: Store, clock: VirtualClock) -> None:
    first = await store.finish(await running(store, new_task(key="k", digest="d", ttl_ms=TTL)), DONE)
    clock.advance(TTL)
    assert await store.recall(ADA, "k", "d") == first
    assert await store.purge(10, linger_ms=0, tombstone_ms=10_000) == 1
    assert await store.recall(ADA, "k", "d") is None
    second = await store.create(new_task(key="k", digest="other"))
    assert second.id != first.id
    assert await store.recall(ADA, "k", "other") == second


@pytest.mark.parametrize(("key", "digest"), [("\ud800", "d"), ("k", "\ud800"), ("\0", "d"), ("k", "\0")])
async def test_a_key_that_can_not_be_stored_is_refused_and_nothing_is_stored(
    store: Store, key: str, digest: str
) -> None:
    new = new_task(key=key, digest=digest)
    with pytest.raises(NotStorable):
        await store.create(new)
    with pytest.raises(TaskNotFound):
        await store.get(ADA, new.id)
