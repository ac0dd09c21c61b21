"""What workers ask: sessions, claims, and the writes that a fence guards."""

from collections.abc import Awaitable, Callable

import pytest

from perdure.domain.errors import InputKeyReused, LeaseLost, NotStorable
from perdure.domain.model import (
    JSON,
    Cancelled,
    Claim,
    Completed,
    Failed,
    Failure,
    InputRequest,
    Outcome,
    Session,
    Status,
)
from perdure.store.base import Store
from tests.store.support import (
    ADA,
    AGE,
    DONE,
    HANDLER,
    LEASE,
    NAME,
    NOW,
    VirtualClock,
    hire,
    new_task,
    parked,
    running,
)

# -- sessions ----------------------------------------------------------------------------------------------------------


async def test_a_session_lives_as_long_as_its_lease_says(store: Store, clock: VirtualClock) -> None:
    session = await store.open_session(LEASE, {"host": "here", "pid": 7})
    assert session == Session(session.id, NOW + LEASE, {"host": "here", "pid": 7})
    clock.advance(LEASE - 1)
    assert await store.sessions() == ((session, False),)
    clock.advance(1)
    assert await store.sessions() == ((session, True),)


async def test_sessions_have_names_of_their_own(store: Store) -> None:
    ids = [(await store.open_session(LEASE, {})).id for _ in range(3)]
    assert {session.id for session, _ in await store.sessions()} == set(ids)
    assert len(set(ids)) == 3


async def test_renewal_counts_from_now(store: Store, clock: VirtualClock) -> None:
    worker = await hire(store)
    clock.advance(20_000)
    await store.renew(worker.session, LEASE)
    ((session, lapsed),) = await store.sessions()
    assert (session.expires_at, lapsed) == (NOW + 20_000 + LEASE, False)


async def test_a_lapsed_lease_that_nobody_took_over_may_be_renewed(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    ((session, _),) = await store.sessions()
    clock.advance(LEASE)
    await store.renew(session.id, LEASE)
    assert await store.take_over() == 0
    await store.report(claim, "still here")


async def test_renewing_tells_which_of_its_own_runs_are_to_stop(store: Store) -> None:
    for _ in range(3):
        await store.create(new_task())
    worker, neighbour = await hire(store), await hire(store)
    one, _ = await worker.claim(2)
    other = await neighbour.claim_one()
    assert (await store.renew(worker.session, LEASE)).cancelled == frozenset()
    for claim in (one, other):
        await store.request_cancel(ADA, claim.task.id)
    assert (await store.renew(worker.session, LEASE)).cancelled == {one.seq}
    assert (await store.renew(neighbour.session, LEASE)).cancelled == {other.seq}


async def test_a_session_that_is_unknown_closed_or_taken_over_can_neither_renew_nor_claim(
    store: Store, clock: VirtualClock
) -> None:
    closed, lapsed = await hire(store), await hire(store)
    await store.close_session(closed.session)
    clock.advance(LEASE)
    await store.take_over()
    for session in ("nobody", closed.session, lapsed.session):
        with pytest.raises(LeaseLost):
            await store.renew(session, LEASE)
        with pytest.raises(LeaseLost):
            await store.claim(session, [HANDLER], 1)


async def test_a_lapsed_session_claims_nothing(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task())
    worker = await hire(store)
    clock.advance(LEASE)
    with pytest.raises(LeaseLost):
        await worker.claim()
    assert (await (await hire(store)).claim_one()).task == created


async def test_closing_a_session_frees_its_runs_without_counting_an_attempt(store: Store) -> None:
    await store.create(new_task(max_attempts=1))
    worker = await hire(store)
    claim = await worker.claim_one()
    await store.close_session(worker.session)
    assert await store.sessions() == ()
    again = await (await hire(store)).claim_one()
    assert (again.seq, again.attempt, again.task) == (claim.seq, 1, claim.task)


async def test_closing_a_session_cancels_what_only_waited_for_its_worker_to_stop(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    ((session, _),) = await store.sessions()
    await store.close_session(session.id)
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED


async def test_closing_a_session_twice_or_one_that_never_was_does_nothing(store: Store) -> None:
    worker = await hire(store)
    await store.close_session(worker.session)
    await store.close_session(worker.session)
    await store.close_session("nobody")


async def test_closing_a_session_leaves_the_runs_of_others_alone(store: Store) -> None:
    claim = await running(store)
    await store.close_session((await hire(store)).session)
    await store.report(claim, "still mine")


# -- claim -------------------------------------------------------------------------------------------------------------


async def test_only_handlers_that_are_named_are_claimed(store: Store) -> None:
    mine, theirs = await store.create(new_task("mine")), await store.create(new_task("theirs"))
    worker = await hire(store)
    assert await worker.claim(10, "tools/call:other", "mine", "") == ()
    assert await store.claim(worker.session, [], 10) == ()
    assert [claim.task for claim in await worker.claim(10, "tools/call:mine")] == [mine]
    assert [claim.task for claim in await worker.claim(10, "tools/call:theirs")] == [theirs]


async def test_claims_come_in_the_order_of_the_handlers_and_oldest_first_within_each(
    store: Store, clock: VirtualClock
) -> None:
    for name in ("a", "b", "b", "a"):
        await store.create(new_task(name))
        clock.advance(1)
    claims = await (await hire(store)).claim(10, "tools/call:b", "tools/call:a")
    assert [(claim.task.operation.name, claim.seq) for claim in claims] == [("b", 2), ("b", 3), ("a", 1), ("a", 4)]


async def test_a_run_that_was_given_back_waits_behind_those_that_have_been_due_longer(
    store: Store, clock: VirtualClock
) -> None:
    claim = await running(store)
    clock.advance(1)
    second = await store.create(new_task())
    clock.advance(1)
    await store.release(claim)
    assert [claim.seq for claim in await (await hire(store)).claim()] == [second.seq, claim.seq]


async def test_no_more_than_the_limit_is_claimed_across_all_handlers(store: Store) -> None:
    for name in ("a", "a", "b", "b"):
        await store.create(new_task(name))
    worker = await hire(store)
    both = ("tools/call:b", "tools/call:a")
    assert await worker.claim(0, *both) == ()
    assert [claim.task.operation.name for claim in await worker.claim(3, *both)] == ["b", "b", "a"]
    assert [claim.task.operation.name for claim in await worker.claim(3, *both)] == ["a"]
    assert await worker.claim(3, *both) == ()


async def test_a_handler_that_is_named_twice_claims_each_run_once(store: Store) -> None:
    await store.create(new_task())
    assert len(await (await hire(store)).claim(10, HANDLER, HANDLER)) == 1


async def test_two_workers_never_hold_the_same_run(store: Store) -> None:
    for _ in range(4):
        await store.create(new_task())
    one, other = await hire(store), await hire(store)
    first, second = await one.claim(3), await other.claim(3)
    assert (len(first), len(second)) == (3, 1)
    assert not {claim.seq for claim in first} & {claim.seq for claim in second}


async def test_claiming_shows_no_change_to_the_task(store: Store, clock: VirtualClock) -> None:
    created = await store.create(new_task())
    clock.advance(10)
    claim = await (await hire(store)).claim_one()
    assert claim.task == created == await store.get(ADA, created.id)
    assert claim.attempt == 1


async def test_a_later_claim_always_has_the_larger_fence(store: Store) -> None:
    await store.create(new_task())
    fences: list[int] = []
    for _ in range(4):
        claim = await (await hire(store)).claim_one()
        fences.append(claim.fence)
        await store.release(claim)
    assert fences == sorted(set(fences))
    assert fences[0] > 0


# -- writes under the fence --------------------------------------------------------------------------------------------


async def test_a_report_shows_as_the_status_message(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    await store.report(claim, "Outline ready 🦊")
    task = await store.get(ADA, claim.task.id)
    assert (task.message, task.version, task.updated_at) == ("Outline ready 🦊", 2, NOW + 10)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (DONE, Status.COMPLETED),
        (Completed({}), Status.COMPLETED),
        (Failed(Failure(-32602, "Bad", {"why": [1, None]}), "It was bad"), Status.FAILED),
        (Failed(Failure(-32602, "Bad")), Status.FAILED),
        (Cancelled(), Status.CANCELLED),
    ],
)
async def test_finishing_writes_the_terminal_status_and_what_came_of_it(
    store: Store, clock: VirtualClock, outcome: Outcome, status: Status
) -> None:
    claim = await running(store)
    await store.report(claim, "halfway")
    clock.advance(10)
    over = await store.finish(claim, outcome)
    assert (over.status, over.version, over.updated_at) == (status, 3, NOW + 10)
    assert over.result == (outcome.result if isinstance(outcome, Completed) else None)
    assert over.error == (outcome.error if isinstance(outcome, Failed) else None)
    assert await store.get(ADA, over.id) == over
    assert await (await hire(store)).claim() == ()


async def test_a_released_run_is_runnable_at_once_and_has_lost_no_attempt(store: Store) -> None:
    claim = await running(store, new_task(max_attempts=1))
    await store.release(claim)
    again = await (await hire(store)).claim_one()
    assert (again.task, again.attempt) == (claim.task, 1)


async def test_releasing_a_run_that_is_to_stop_cancels_its_task(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    await store.release(claim)
    assert (await store.get(ADA, claim.task.id)).status is Status.CANCELLED
    assert await (await hire(store)).claim() == ()


async def test_parking_shows_the_questions_in_the_order_of_asking(store: Store, clock: VirtualClock) -> None:
    claim = await running(store)
    clock.advance(10)
    task = await store.park(claim, {"z": NAME, "a": AGE, "m": NAME})
    assert (task.status, task.version, task.updated_at) == (Status.INPUT_REQUIRED, 2, NOW + 10)
    assert task.inputs == tuple(
        InputRequest(key, request, NOW + 10) for key, request in [("z", NAME), ("a", AGE), ("m", NAME)]
    )
    assert await store.get(ADA, task.id) == task
    assert await store.journal(claim) == {entry.key: entry for entry in task.inputs}
    assert list(await store.journal(claim)) == ["z", "a", "m"]


async def test_a_parked_task_is_held_by_nobody_and_offered_to_nobody(store: Store, clock: VirtualClock) -> None:
    await parked(store)
    assert await (await hire(store)).claim() == ()
    clock.advance(LEASE)
    assert await store.take_over() == 0


async def test_later_questions_stand_behind_the_earlier_ones_in_the_journal(store: Store, clock: VirtualClock) -> None:
    claim = await parked(store, z=NAME)
    await store.answer(ADA, claim.task.id, {"z": 1})
    again = await (await hire(store)).claim_one()
    clock.advance(10)
    task = await store.park(again, {"z": NAME, "a": AGE})
    assert task.inputs == (InputRequest("a", AGE, NOW + 10),)
    assert list(await store.journal(again)) == ["z", "a"]


async def test_parking_on_questions_that_are_answered_already_is_runnable_at_once(
    store: Store, clock: VirtualClock
) -> None:
    """The wake-up that would be lost: the answer came between the look at the journal and the park."""
    claim = await parked(store)
    resumed = await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    clock.advance(10)
    assert await store.park(again, {"name": NAME}) == resumed
    third = await (await hire(store)).claim_one()
    assert third.task == resumed
    assert third.fence > again.fence


async def test_parking_a_run_that_is_to_stop_cancels_its_task(store: Store) -> None:
    claim = await running(store)
    await store.request_cancel(ADA, claim.task.id)
    task = await store.park(claim, {"name": NAME})
    assert (task.status, task.inputs) == (Status.CANCELLED, ())
    assert await store.journal(claim) == {}


async def test_a_key_that_was_used_for_another_question_is_refused_and_the_run_goes_on(store: Store) -> None:
    claim = await parked(store)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})
    again = await (await hire(store)).claim_one()
    with pytest.raises(InputKeyReused, match="'name'"):
        await store.park(again, {"age": AGE, "name": AGE})
    assert list(await store.journal(again)) == ["name"]
    await store.finish(again, DONE)


async def test_two_tasks_may_use_the_same_key(store: Store) -> None:
    one, other = await parked(store), await parked(store)
    await store.answer(ADA, one.task.id, {"name": "Ada"})
    assert (await store.get(ADA, other.task.id)).status is Status.INPUT_REQUIRED


@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
async def test_what_has_no_json_form_is_refused_and_the_run_is_still_held(store: Store, value: JSON) -> None:
    claim = await running(store)
    with pytest.raises(NotStorable):
        await store.finish(claim, Completed({"x": value}))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, "Broken", value)))
    with pytest.raises(NotStorable):
        await store.park(claim, {"x": {"value": value}})
    assert await store.get(ADA, claim.task.id) == claim.task
    await store.finish(claim, DONE)


async def test_text_that_utf8_can_not_carry_is_refused_wherever_it_stands(store: Store) -> None:
    claim = await running(store)
    with pytest.raises(NotStorable):
        await store.report(claim, "\ud800")
    with pytest.raises(NotStorable):
        await store.park(claim, {"\ud800": NAME})
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, "\ud800"), "fine"))
    with pytest.raises(NotStorable):
        await store.finish(claim, Failed(Failure(-32000, "fine"), "\ud800"))
    assert await store.get(ADA, claim.task.id) == claim.task


# -- fences ------------------------------------------------------------------------------------------------------------


async def _takeover(store: Store, _: VirtualClock, __: Claim) -> None:
    ((session, _lapsed),) = await store.sessions()
    await store.take_over([session.id])


async def _takeover_and_claim(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _takeover(store, clock, claim)
    await (await hire(store)).claim_one()


async def _close(store: Store, _: VirtualClock, __: Claim) -> None:
    ((session, _lapsed),) = await store.sessions()
    await store.close_session(session.id)


async def _release(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.release(claim)


async def _park(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.park(claim, {"name": NAME})


async def _park_and_answer(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _park(store, clock, claim)
    await store.answer(ADA, claim.task.id, {"name": "Ada"})


async def _finish(store: Store, _: VirtualClock, claim: Claim) -> None:
    await store.finish(claim, DONE)


async def _expire(store: Store, clock: VirtualClock, _: Claim) -> None:
    clock.advance(60_000)
    assert await store.expire(10) == 1


async def _purge(store: Store, clock: VirtualClock, claim: Claim) -> None:
    await _expire(store, clock, claim)
    assert await store.purge(10, linger_ms=0, tombstone_ms=0) == 1


LOSSES = [
    _takeover, _takeover_and_claim, _close, _release, _park, _park_and_answer, _finish, _expire, _purge,
]  # fmt: skip

WRITES: dict[str, Callable[[Store, Claim], Awaitable[object]]] = {
    "report": lambda store, claim: store.report(claim, "late"),
    "park": lambda store, claim: store.park(claim, {"late": NAME}),
    "finish": lambda store, claim: store.finish(claim, Completed({"late": True})),
    "release": lambda store, claim: store.release(claim),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda lose: lose.__name__.strip("_"))
async def test_a_fence_that_no_longer_holds_writes_nothing(
    store: Store,
    clock: VirtualClock,
    lose: Callable[[Store, VirtualClock, Claim], Awaitable[None]],
    write: str,
) -> None:
    claim = await running(store, new_task(ttl_ms=60_000))
    bystander = await store.create(new_task("other"))
    await lose(store, clock, claim)
    before = [await state(store, task.id) for task in (claim.task, bystander)]
    with pytest.raises(LeaseLost):
        await WRITES[write](store, claim)
    assert [await state(store, task.id) for task in (claim.task, bystander)] == before


async def state(store: Store, task_id: str) -> object:
    """The task, or the error that stands for it."""
    try:
        return await store.get(ADA, task_id)
    except Exception as error:  # noqa: BLE001 - compared by its type
        return type(error)


async def test_a_fence_guards_its_own_task_only(store: Store) -> None:
    """Claims of one batch share a number; it opens no other task's run."""
    await store.create(new_task())
    worker = await hire(store)
    claim = await worker.claim_one()
    other = await store.create(new_task("other"))
    with pytest.raises(LeaseLost):
        await store.finish(Claim(other, claim.fence, 1), DONE)


async def test_a_write_that_lost_its_fence_hears_of_that_before_anything_else(store: Store) -> None:
    claim = await parked(store)
    with pytest.raises(LeaseLost):
        await store.park(claim, {"name": AGE})
    with pytest.raises(LeaseLost):
        await store.finish(claim, Completed({"x": float("nan")}))
