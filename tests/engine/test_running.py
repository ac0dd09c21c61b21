"""Claim, run, finish: what a worker does with tasks that ask nothing and that nobody stops."""

import asyncio
from collections import Counter
from functools import partial
from typing import cast

import pytest

from perdure.domain.errors import LeaseLost
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Cancelled, Completed, Failed, Failure, JSONObject, Outcome, Owner, Status
from perdure.engine.handler import Placement
from perdure.engine.run import Parked, Run
from perdure.engine.worker import Worker
from perdure.store.base import Store
from tests.engine.support import (
    HOUR,
    Coroutine,
    Thread,
    claim_as_another,
    done,
    ended,
    handlers,
    serving,
    worker_session,
)
from tests.store.support import new_task
from tests.support import eventually


async def at_once(run: Run, params: JSONObject) -> Outcome:
    return done()


async def test_a_task_is_claimed_run_and_finished(store: Store) -> None:
    async def echo(run: Run, params: JSONObject) -> Outcome:
        assert run.claim.attempt == 1
        assert not run.cancelled
        return Completed({"structuredContent": params})

    task = await store.create(new_task(params={"size": "small"}))
    async with serving(store, handlers(report=echo)):
        over = await ended(store, task)
    assert (over.status, over.result) == (Status.COMPLETED, {"structuredContent": {"size": "small"}})


async def test_a_task_that_is_created_while_the_worker_is_idle_does_not_wait_for_the_next_poll(store: Store) -> None:
    async with serving(store, handlers(report=at_once), poll_ms=3_600_000):
        await ended(store, await store.create(new_task()))
        await ended(store, await store.create(new_task()))


async def test_a_task_that_another_process_created_is_found_by_polling(two_processes: tuple[Store, Store]) -> None:
    ours, theirs = two_processes
    async with serving(ours, handlers(report=at_once)):
        await worker_session(ours)
        await ended(theirs, await theirs.create(new_task()))


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (done(), Status.COMPLETED),
        (Failed(Failure(-32000, "No paper"), "out of paper"), Status.FAILED),
        (Cancelled(), Status.CANCELLED),
    ],
)
async def test_whatever_a_handler_returns_is_what_the_task_ends_as(
    store: Store, outcome: Outcome, status: Status
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return outcome

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        assert (await ended(store, task)).status is status


async def test_never_more_tasks_run_than_there_are_slots_and_all_of_them_run(store: Store) -> None:
    running = Counter[str]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        await asyncio.sleep(0)
        running["now"] -= 1
        running["all"] += 1
        return done()

    tasks = [await store.create(new_task()) for _ in range(100)]
    async with serving(store, handlers(report=work), concurrency=3):
        over = [await ended(store, task) for task in tasks]
    assert {task.status for task in over} == {Status.COMPLETED}
    assert running == {"now": 0, "most": 3, "all": 100}


async def test_every_slot_is_used_at_the_same_time(store: Store) -> None:
    everyone = asyncio.Barrier(5)

    async def work(run: Run, params: JSONObject) -> Outcome:
        await everyone.wait()
        return done()

    tasks = [await store.create(new_task()) for _ in range(5)]
    async with serving(store, handlers(report=work), concurrency=5):
        for task in tasks:
            await ended(store, task)


async def test_a_thread_counts_as_a_slot_like_a_coroutine(store: Store) -> None:
    running = Counter[str]()

    def work(run: Run) -> Outcome:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        running["now"] -= 1
        return done(run.claim.task.id)

    tasks = [await store.create(new_task()) for _ in range(5)]
    async with serving(store, handlers(report=Thread(work)), concurrency=1):
        over = [await ended(store, task) for task in tasks]
    assert running["most"] == 1
    assert [task.result for task in over] == [done(task.id).result for task in tasks]


@pytest.mark.parametrize("names", [("busy", "quiet"), ("quiet", "busy")])
async def test_handlers_take_turns_so_that_a_busy_tool_starves_nobody(store: Store, names: tuple[str, str]) -> None:
    order: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        order.append(run.claim.operation.name)
        return done()

    tasks = [await store.create(new_task("busy")) for _ in range(20)]
    tasks.append(await store.create(new_task("quiet")))
    async with serving(store, handlers(**dict.fromkeys(names, work)), concurrency=1):
        for task in tasks:
            await ended(store, task)
    assert order.index("quiet") <= 1


async def test_a_task_without_a_handler_is_left_to_others(store: Store) -> None:
    strange = await store.create(new_task("strange"))
    async with serving(store, handlers(report=at_once)):
        await ended(store, await store.create(new_task()))
        claim = await claim_as_another(store, "strange")
    assert (claim.task.id, claim.attempt) == (strange.id, 1)


async def test_a_handler_that_is_added_later_gets_its_tasks(store: Store) -> None:
    known = handlers()
    task = await store.create(new_task())
    async with serving(store, known):
        await worker_session(store)
        known |= handlers(report=at_once)
        await ended(store, task)


async def test_a_report_is_what_the_task_says_while_it_runs(store: Store) -> None:
    go_on = asyncio.Event()

    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.report("halfway")
        await go_on.wait()
        return done()

    task = await store.create(new_task())

    async def halfway() -> bool:
        return (await store.get(task.owner, task.id)).message == "halfway"

    async with serving(store, handlers(report=work)):
        await eventually(halfway, "the report was not seen")
        go_on.set()
        assert (await ended(store, task)).message is None


async def test_a_run_that_was_taken_over_can_neither_report_nor_finish(store: Store) -> None:
    """Neither by the verb, which knows that the run was told, nor past it: the fence no longer holds."""
    attempts, refused = list[int](), list[type[BaseException]]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        attempts.append(run.claim.attempt)
        if run.claim.attempt == 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                for report in (run.report, partial(run.store.report, run.claim)):
                    try:
                        await report("still here")
                    except (LeaseLost, asyncio.CancelledError) as error:
                        refused.append(type(error))
        return done(f"attempt {run.claim.attempt}")

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        session = await worker_session(store)
        await eventually(lambda: attempts == [1], "the task did not start")
        assert await store.take_over([session]) == 1
        over = await ended(store, task)
    assert (refused, attempts) == ([asyncio.CancelledError, LeaseLost], [1, 2])
    assert (over.message, over.result) == (None, done("attempt 2").result)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        SystemExit("secret"),
        KeyboardInterrupt("secret"),
        GeneratorExit("secret"),
        asyncio.CancelledError("secret"),
        BaseExceptionGroup("secret", [KeyboardInterrupt()]),
        Parked("secret"),  # without having asked anything
        LeaseLost("secret"),  # which it has not
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("threaded", [False, True], ids=["coroutine", "thread"])
async def test_a_handler_that_raises_fails_its_task_and_nothing_else(
    store: Store, error: BaseException, threaded: bool
) -> None:
    def bad_thread(run: Run) -> Outcome:
        raise error

    async def bad_coroutine(run: Run, params: JSONObject) -> Outcome:
        raise error

    bad = Thread(bad_thread) if threaded else Coroutine(bad_coroutine)
    task = await store.create(new_task("bad"))
    async with serving(store, handlers(bad=bad, report=at_once)):
        over = await ended(store, task)
        await ended(store, await store.create(new_task()))
    assert (over.status, over.error) == (Status.FAILED, Failure(INTERNAL_ERROR, "Internal error"))
    assert over.message == "Internal error"


async def test_a_result_that_has_no_json_form_fails_the_task_and_says_so(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        return Completed({"share": float("nan")})

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        over = await ended(store, task)
    assert over.status is Status.FAILED
    assert over.error is not None
    assert (over.error.code, "can't be stored as JSON" in over.error.message) == (INTERNAL_ERROR, True)
    assert f"could not be stored: {over.error.message}" in caplog.text


async def test_an_outcome_that_is_none_fails_the_task_and_does_not_stop_the_worker(store: Store) -> None:
    async def bad(run: Run, params: JSONObject) -> Outcome:
        return cast("Outcome", {"content": []})

    task = await store.create(new_task("bad"))
    async with serving(store, handlers(bad=bad, report=at_once)):
        over = await ended(store, task)
        await ended(store, await store.create(new_task()))
    assert (over.status, over.error) == (Status.FAILED, Failure(INTERNAL_ERROR, "Internal error"))


async def test_a_worker_that_is_stopped_before_it_serves_does_nothing(store: Store) -> None:
    await store.create(new_task())
    worker = Worker(store, handlers(report=at_once), concurrency=1, lease_ms=1000, grace_ms=0, poll_ms=10)
    worker.stop()
    await worker.serve()
    assert await store.sessions() == ()
    assert (await claim_as_another(store)).attempt == 1


@pytest.mark.parametrize("text", ["\ud800", "\0"], ids=["surrogate", "null"])
async def test_a_report_that_can_not_be_stored_fails_the_task_and_says_so(store: Store, text: str) -> None:
    async def work(run: Run, params: JSONObject) -> Outcome:
        await run.report(text)
        return done()

    task = await store.create(new_task())
    async with serving(store, handlers(report=work)):
        over = await ended(store, task)
    assert over.error is not None
    assert (over.status, "can't" in over.error.message) == (Status.FAILED, True)


async def test_a_queue_has_no_more_runs_at_once_than_the_worker_gives_it_and_holds_up_no_other(store: Store) -> None:
    running = Counter[str]()
    let_go = asyncio.Event()

    async def render(run: Run, params: JSONObject) -> Outcome:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        await let_go.wait()
        running["now"] -= 1
        return done()

    on_gpu = Coroutine(render, placement=Placement(queue="gpu"))
    elsewhere = Coroutine(at_once, placement=Placement(queue="mail"))
    rendering = [await store.create(new_task("render")) for _ in range(4)]
    unserved = await store.create(new_task("mail"))
    async with serving(
        store, handlers(render=on_gpu, report=at_once, mail=elsewhere), queues={"gpu": 1, "default": None}, poll_ms=HOUR
    ):
        for _ in range(3):
            await ended(store, await store.create(new_task()))
        ((session, _),) = await store.sessions()
        assert session.info["handlers"] == ["tools/call:render", "tools/call:report"]
        let_go.set()
        for task in rendering:
            await ended(store, task)
    assert running == {"now": 0, "most": 1}
    assert (await claim_as_another(store, "mail")).task.id == unserved.id


async def test_a_tool_has_no_more_runs_at_once_than_it_may_have_in_one_worker(store: Store) -> None:
    running = Counter[str]()

    async def work(run: Run, params: JSONObject) -> Outcome:
        running["now"] += 1
        running["most"] = max(running["most"], running["now"])
        await asyncio.sleep(0)
        running["now"] -= 1
        return done()

    tasks = [await store.create(new_task()) for _ in range(10)]
    async with serving(store, handlers(report=Coroutine(work, placement=Placement(concurrency=2)))):
        for task in tasks:
            await ended(store, task)
    assert running == {"now": 0, "most": 2}


async def test_urgent_work_is_begun_first(store: Store) -> None:
    order: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        order.append(run.claim.operation.name)
        return done()

    tasks = [await store.create(new_task(name)) for name in ("report", "report", "urgent", "urgent")]
    urgent = Coroutine(work, placement=Placement(priority=1))
    async with serving(store, handlers(report=work, urgent=urgent), concurrency=1):
        for task in tasks:
            await ended(store, task)
    assert order == ["urgent", "urgent", "report", "report"]


async def test_tenants_are_served_in_turn_however_much_one_of_them_has_waiting(store: Store) -> None:
    order: list[str] = []

    async def work(run: Run, params: JSONObject) -> Outcome:
        order.append(run.claim.task.owner.tenant)
        return done()

    owners = [Owner("busy", "ada")] * 10 + [Owner("quiet", "bob")] * 2
    tasks = [await store.create(new_task(owner=owner)) for owner in owners]
    async with serving(store, handlers(report=work), concurrency=1):
        for task in tasks:
            await ended(store, task)
    assert order[:4] == ["busy", "quiet", "busy", "quiet"]
