"""What was asked within a request and can't be answered any more: stopped, unless somebody came back."""

import asyncio

import pytest

from perdure.domain.errors import StoreUnavailable, TaskNotFound
from perdure.domain.model import Status, Task
from perdure.engine.runtime import Options, Runtime
from perdure.engine.unanswered import Unanswered
from perdure.store.base import Store
from tests.engine.rigged import Rigged
from tests.engine.subscribing import Hands
from tests.engine.support import answer, question, status
from tests.store.support import ADA, VirtualClock, new_task, parked
from tests.support import eventually

LIFE = 600.0


async def asked(store: Store) -> Task:
    """A task that asks two things."""
    claim = await parked(store, name=question("Your name?"), age=question("Your age?"))
    return await store.get(ADA, claim.task.id)


def on(store: Store, hands: Hands) -> Unanswered:
    return Unanswered(lambda: store, hands)


async def test_what_nobody_came_back_for_is_stopped_when_its_time_is_up_and_not_before(store: Store) -> None:
    hands = Hands()
    unanswered, task = on(store, hands), await asked(store)
    unanswered.expect(task, LIFE)
    hands.advance(LIFE - 1)
    await unanswered.sweep()
    assert await status(store, task) is Status.INPUT_REQUIRED
    hands.advance(1)
    await unanswered.sweep()
    assert await status(store, task) is Status.CANCELLED


async def test_an_answer_to_any_of_it_shows_that_somebody_did(store: Store) -> None:
    hands = Hands()
    unanswered, task = on(store, hands), await asked(store)
    unanswered.expect(task, LIFE)
    await answer(store, task, age=36)
    hands.advance(LIFE)
    await unanswered.sweep()
    assert await status(store, task) is Status.INPUT_REQUIRED


async def test_what_is_asked_anew_has_as_long_again(store: Store) -> None:
    hands = Hands()
    unanswered, task = on(store, hands), await asked(store)
    unanswered.expect(task, LIFE)
    hands.advance(LIFE - 1)
    unanswered.expect(task, LIFE)
    hands.advance(LIFE - 1)
    await unanswered.sweep()
    assert await status(store, task) is Status.INPUT_REQUIRED
    hands.advance(1)
    await unanswered.sweep()
    assert await status(store, task) is Status.CANCELLED


async def test_what_is_asked_anew_while_it_is_looked_at_is_not_forgotten(gated: Rigged) -> None:
    hands = Hands()
    unanswered, task = on(gated, hands), await asked(gated)
    unanswered.expect(task, LIFE)
    await answer(gated, task, age=36)
    left = await gated.get(ADA, task.id)
    hands.advance(LIFE)
    gate = gated.gate_before("get")
    sweeping = asyncio.create_task(unanswered.sweep())
    await gate.reached()
    unanswered.expect(left, LIFE)
    gate.open()
    await sweeping
    hands.advance(LIFE)
    await unanswered.sweep()
    assert await status(gated, task) is Status.CANCELLED


async def test_what_is_gone_is_let_go(store: Store, clock: VirtualClock) -> None:
    hands = Hands()
    claim = await parked(store, new_task(ttl_ms=1), name=question("Your name?"))
    unanswered, task = on(store, hands), await store.get(ADA, claim.task.id)
    unanswered.expect(task, LIFE)
    clock.advance(1)
    await store.expire(10)
    assert await store.purge(10, linger_ms=0, tombstone_ms=0) == 1
    hands.advance(LIFE)
    await unanswered.sweep()
    with pytest.raises(TaskNotFound):
        await store.get(ADA, task.id)


async def test_a_store_that_is_away_only_puts_it_off(gated: Rigged) -> None:
    hands = Hands()
    unanswered, task = on(gated, hands), await asked(gated)
    unanswered.expect(task, LIFE)
    hands.advance(LIFE)
    gated.fail("get", 1)
    with pytest.raises(StoreUnavailable):
        await unanswered.sweep()
    gated.fail("get", 1)
    watching = asyncio.create_task(unanswered.keep_watch())

    async def stopped() -> bool:
        return (await gated.inspect(task.id)).task.status is Status.CANCELLED

    await eventually(stopped, "nobody looked again")
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_a_process_keeps_watch_as_long_as_it_runs(store: Store) -> None:
    runtime = Runtime(store, {}, Options(worker=False))
    async with runtime.running():
        task = await asked(store)
        runtime.unanswered.expect(task, 0)

        async def stopped() -> bool:
            return await status(store, task) is Status.CANCELLED

        await eventually(stopped, "nobody keeps watch")
