"""Work that another system does for a task: handed over by a handle, settled from wherever the store is."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perdure import (
    AlreadySettled,
    ExternalWork,
    Finished,
    Handle,
    InvalidDuration,
    LimitExceeded,
    Limits,
    NotStorable,
    StepFailed,
    StoreUnusable,
    SyncTaskContext,
    TaskContext,
    TaskNotFound,
    Tasks,
)
from perdure.store.clock import Clock
from perdure.store.sqlite import SQLiteStore
from perdure.testing import Harness
from tests.store.support import VirtualClock
from tests.support import PATIENCE, eventually
from tests.tools.elsewhere import Elsewhere
from tests.wire.envelopes import JSON
from tests.wire.support import ROOT, Stage, stage

TOKEN = "t" * 32
TASK = "tsk_" + "a" * 32


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
async def scene(tmp_path: Path, elsewhere: Elsewhere) -> Any:
    async with stage(tmp_path, elsewhere.declare) as up:
        yield up


def text(task: JSON) -> str:
    return task["result"]["content"][0]["text"]


# -- from Python -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "as_text"), [("render", True), ("render_sync", False)])
async def test_a_result_is_what_the_tool_gets(scene: Stage, elsewhere: Elsewhere, name: str, as_text: bool) -> None:
    task_id = await scene.client.start(name)
    handle = await elsewhere.given()
    assert handle.task_id == task_id
    assert (await scene.client.get(task_id)).result["status"] == "working"
    await scene.tasks.external.complete(str(handle) if as_text else handle, {"frames": [1, 2.5, None]})
    assert text(await scene.client.until(task_id)) == "{'frames': [1, 2.5, None]}"
    assert len(elsewhere.handles) == 1


async def test_a_tool_that_waits_holds_nothing_and_is_run_again(scene: Stage, elsewhere: Elsewhere) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()

    async def parked() -> bool:
        run = (await scene.store.inspect(task_id)).run
        return run is not None and run.session is None

    await eventually(parked, "it holds its run")
    await scene.tasks.external.complete(handle)
    assert text(await scene.client.until(task_id)) == "None"
    assert elsewhere.ran == ["render", "render"]


async def test_a_failure_is_a_failed_step_that_the_tool_may_catch(tmp_path: Path, elsewhere: Elsewhere) -> None:
    caught: list[StepFailed] = []

    def declare(tasks: Tasks) -> None:
        elsewhere.declare(tasks)

        @tasks.tool()
        async def careful(task: TaskContext) -> str:
            try:
                return await task.external("render", elsewhere.take)
            except StepFailed as failed:
                caught.append(failed)
                return "made do without"

    async with stage(tmp_path, declare) as up:
        task_id = await up.client.start("careful")
        await up.tasks.external.fail(await elsewhere.given(), "no such scene")
        assert text(await up.client.until(task_id)) == "made do without"
        assert [(each.name, each.type, each.message) for each in caught] == [
            ("render", "ExternalFailed", "no such scene")
        ]
        task_id = await up.client.start("render")
        await up.tasks.external.fail(await elsewhere.given(2), "no such scene")
        assert (await up.client.until(task_id))["result"]["isError"] is True


async def test_what_is_reported_is_the_status_message(scene: Stage, elsewhere: Elsewhere) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    await scene.tasks.external.report(handle, "half way")
    task = (await scene.client.get(task_id)).result
    assert (task["status"], task["statusMessage"]) == ("working", "half way")


async def test_a_huge_message_is_kept_in_part_and_text_that_is_no_unicode_made_some(
    scene: Stage, elsewhere: Elsewhere
) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    await scene.tasks.external.report(handle, "\ud800\0" + "x" * 5_000_000)
    assert (await scene.client.get(task_id)).result["statusMessage"] == "??" + "x" * 9_997 + "…"
    for _ in range(2):
        await scene.tasks.external.fail(handle, "\ud800\0" + "x" * 5_000_000)
    entry = (await scene.store.inspect(task_id)).journal.entries["0"]
    assert len(json.dumps(entry.value)) < 11_000


async def test_a_message_that_is_no_text_is_a_bug_of_the_callers(scene: Stage, elsewhere: Elsewhere) -> None:
    await scene.client.start("render")
    handle = await elsewhere.given()
    bad: list[Any] = [None, 5, b"bytes"]
    for message in bad:
        with pytest.raises(TypeError):
            await scene.tasks.external.fail(handle, message)
        with pytest.raises(TypeError):
            await scene.tasks.external.report(handle, message)


class Model(BaseModel):
    on: date


@dataclass
class Plain:
    on: date


async def test_results_of_types_that_pydantic_knows_come_back_as_the_type_that_is_asked_for(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def typed(task: TaskContext) -> str:
            model = await task.external("render", elsewhere.take, returns=Model)
            return repr([model, await task.external("render", elsewhere.take, returns=Plain)])

    given: list[object] = [Model(on=date(2026, 11, 29)), Plain(date(2026, 11, 29)), {"on": "2026-11-29"}]
    async with stage(tmp_path, declare) as up:
        for number, each in enumerate(given):
            task_id = await up.client.start("typed")
            for asked in (1, 2):
                await up.tasks.external.complete(await elsewhere.given(2 * number + asked), each)
            wanted = [Model(on=date(2026, 11, 29)), Plain(date(2026, 11, 29))]
            assert text(await up.client.until(task_id)) == repr(wanted)


async def test_a_result_of_another_type_is_a_tool_error_that_does_not_quote_it(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def typed(task: TaskContext) -> str:
            return repr(await task.external("render", elsewhere.take, returns=Model))

    async with stage(tmp_path, declare) as up:
        task_id = await up.client.start("typed")
        await up.tasks.external.complete(await elsewhere.given(), {"on": "sesame"})
        result = (await up.client.until(task_id))["result"]
        assert result["isError"] is True
        words = "The result of the external work 'render' can't be used: on: Input should be a valid date"
        assert words in result["content"][0]["text"]
        assert "sesame" not in json.dumps(result)


async def test_a_result_that_has_no_json_form_is_refused_and_may_be_given_again(
    scene: Stage, elsewhere: Elsewhere
) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    for bad in (float("nan"), object(), "\ud800", {1: {2, object()}}, b"\xff"):
        with pytest.raises(NotStorable, match="The result of the external work can't be stored as JSON"):
            await scene.tasks.external.complete(handle, bad)
    await scene.tasks.external.complete(handle, "good")
    assert text(await scene.client.until(task_id)) == "'good'"


async def test_a_result_past_the_limit_is_refused_and_may_be_given_again(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with stage(tmp_path, elsewhere.declare, limits=Limits(step_result=100)) as up:
        task_id = await up.client.start("render")
        handle = await elsewhere.given()
        with pytest.raises(LimitExceeded, match="takes 101 bytes as JSON, and 100 is the limit"):
            await up.tasks.external.complete(handle, "x" * 99)
        await up.tasks.external.complete(handle, "é" * 49)
        assert text(await up.client.until(task_id)) == repr("é" * 49)


# -- who may, and when -------------------------------------------------------------------------------------------------

Word = Callable[[ExternalWork, Handle], Awaitable[None]]
WORDS: list[Word] = [
    lambda work, handle: work.complete(handle, "late"),
    lambda work, handle: work.fail(handle, "late"),
    lambda work, handle: work.report(handle, "late"),
]


async def test_forged_handles_and_those_of_others_are_one_answer_and_change_nothing(
    scene: Stage, elsewhere: Elsewhere
) -> None:
    first = await scene.client.start("render")
    mine = await elsewhere.given()
    await scene.client.start("render")
    other = await elsewhere.given(2)
    before = (await scene.store.inspect(first)).journal.entries["0"]
    forged = [
        Handle(mine.task_id, mine.place, other.token),
        Handle(mine.task_id, "1", mine.token),
        Handle(mine.task_id, "0.0/0", mine.token),
        Handle(TASK, mine.place, mine.token),
        Handle(mine.task_id, mine.place, TOKEN),
    ]
    for word in WORDS:
        for handle in forged:
            with pytest.raises(TaskNotFound, match=r"^Task not found$"):
                await word(scene.tasks.external, handle)
    assert (await scene.store.inspect(first)).journal.entries["0"] == before


async def _finish(scene: Stage, handle: Handle, _: VirtualClock) -> None:
    await scene.tasks.external.complete(handle, "in time")
    await scene.client.until(handle.task_id, "completed")


async def _cancel(scene: Stage, handle: Handle, _: VirtualClock) -> None:
    await scene.client.cancel(handle.task_id)
    await scene.client.until(handle.task_id, "cancelled")


async def _expire(scene: Stage, handle: Handle, clock: VirtualClock) -> None:
    clock.advance(60_000)
    await scene.store.expire(10)
    assert (await scene.client.get(handle.task_id)).result["status"] == "failed"


@pytest.mark.parametrize("end", [_finish, _cancel, _expire], ids=lambda end: end.__name__.strip("_"))
async def test_after_the_end_of_the_task_it_is_too_late(
    tmp_path: Path, elsewhere: Elsewhere, end: Callable[[Stage, Handle, VirtualClock], Awaitable[None]]
) -> None:
    def declare(tasks: Tasks) -> None:
        tasks.tool(ttl="1m")(elsewhere.render)

    clock = VirtualClock()
    async with stage(tmp_path, declare, clock=clock) as up:
        task_id = await up.client.start("render")
        handle = await elsewhere.given()
        await end(up, handle, clock)
        before = (await up.client.get(task_id)).result
        for word in WORDS:
            with pytest.raises(AlreadySettled):
                await word(up.tasks.external, handle)
        assert (await up.client.get(task_id)).result == before


async def test_of_two_words_at_once_one_counts_and_the_same_again_is_no_error(
    scene: Stage, elsewhere: Elsewhere
) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    work = scene.tasks.external
    said = await asyncio.gather(
        *(work.complete(handle, number) for number in range(5)),
        *(work.fail(handle, "no") for _ in range(5)),
        return_exceptions=True,
    )
    counted = [index for index, each in enumerate(said) if each is None]
    assert all(each is None or isinstance(each, AlreadySettled) for each in said)
    assert len(counted) == (1 if counted[0] < 5 else 5)
    result = (await scene.client.until(task_id))["result"]
    assert result["isError"] or result["content"][0]["text"] == str(counted[0])


async def test_work_side_by_side_is_settled_apart(scene: Stage, elsewhere: Elsewhere) -> None:
    task_id = await scene.client.start("two")
    await elsewhere.given(2)
    one, two = sorted(elsewhere.handles, key=lambda handle: handle.place)
    await scene.tasks.external.complete(str(two), 2)
    await scene.tasks.external.complete(str(one), 1)
    assert text(await scene.client.until(task_id)) == "[1, 2]"


# -- cancellation and time ---------------------------------------------------------------------------------------------


async def test_a_cancelled_task_has_the_work_given_up(scene: Stage, elsewhere: Elsewhere) -> None:
    task_id = await scene.client.start("stoppable")
    handle = await elsewhere.given()
    await scene.client.cancel(task_id)
    await scene.client.until(task_id, "cancelled")
    assert elsewhere.cancelled == [handle]
    with pytest.raises(AlreadySettled):
        await scene.tasks.external.complete(handle)


async def test_a_cancel_function_that_fails_is_logged_and_the_task_is_cancelled_all_the_same(
    scene: Stage, elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    async def stop(handle: Handle) -> None:
        raise ConnectionError("no route")

    elsewhere.stop = stop
    task_id = await scene.client.start("stoppable")
    handle = await elsewhere.given()
    await scene.client.cancel(task_id)
    await scene.client.until(task_id, "cancelled")
    assert "The cancel function of the external work 'render' raised" in caplog.text
    assert handle.token not in caplog.text


async def test_work_that_takes_too_long_is_given_up(scene: Stage, elsewhere: Elsewhere) -> None:
    assert text(await scene.client.finish("impatient")) == "TimeoutError: 'render' did not report in time"
    assert elsewhere.cancelled == elsewhere.handles
    with pytest.raises(AlreadySettled):
        await scene.tasks.external.complete(elsewhere.handles[0])


async def test_durations_that_are_none_are_refused_before_anything_is_handed_over(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    caught: list[str] = []

    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def careless(task: TaskContext) -> str:
            for bad in ("soon", 0, "-1s"):
                for options in ({"timeout": bad}, {"every": bad}):
                    try:
                        await task.external("render", elsewhere.take, poll=elsewhere.look, **options)  # pyright: ignore[reportArgumentType, reportCallIssue]
                    except InvalidDuration as error:
                        caught.append(str(error).split(":")[0])
            return "none"

    async with stage(tmp_path, declare) as up:
        assert text(await up.client.finish("careless")) == "none"
    assert caught == ["timeout", "every"] * 3
    assert elsewhere.handles == []


async def test_a_start_that_fails_is_a_failed_step(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        @tasks.tool()
        async def hopeless(task: TaskContext) -> str:
            def start(handle: Handle) -> None:
                raise ConnectionError("no route")

            try:
                return await task.external("render", start)
            except StepFailed as failed:
                return f"{failed.type}: {failed.message}"

    async with stage(tmp_path, declare) as up:
        assert text(await up.client.finish("hopeless")) == "ConnectionError: no route"


# -- looking -----------------------------------------------------------------------------------------------------------


LOOKS: list[tuple[Finished, str]] = [
    (Finished({"a": 1}), "{'a': 1}"),
    (Finished(), "None"),
    (Finished(error="no such scene"), "ExternalFailed: no such scene"),
    (Finished(error="gone", type="SceneGone"), "SceneGone: gone"),
    (Finished(object()), "NotStorable: The result of the external work can't be stored as JSON"),
    (Finished("x" * 2_000_000), "LimitExceeded: The result of the external work takes 2000002 bytes as JSON, and"),
]


async def test_work_is_looked_at_until_it_is_over(scene: Stage, elsewhere: Elsewhere) -> None:
    started = [await scene.client.start("looked_at") for _ in LOOKS]
    await elsewhere.given(len(LOOKS))
    for task_id, (found, wanted) in zip(started, LOOKS, strict=True):
        elsewhere.found[task_id] = found
        assert text(await scene.client.until(task_id)).startswith(wanted)


# -- from another process ----------------------------------------------------------------------------------------------

SETTLE = """
import asyncio, sys
from perdure import Tasks

async def main():
    tasks = Tasks(sys.argv[1])
    await tasks.external.report(sys.argv[2], "from afar")
    async with tasks.connected():
        await tasks.external.report(sys.argv[2], "nearly")
        await tasks.external.complete(sys.argv[2], "settled elsewhere")

asyncio.run(main())
"""


async def test_a_process_that_serves_nothing_may_settle_work(scene: Stage, elsewhere: Elsewhere) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SETTLE, f"sqlite:///{scene.database}", str(handle), cwd=ROOT
    )
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == 0
    assert text(await scene.client.until(task_id)) == "'settled elsewhere'"


async def test_plain_code_of_the_server_may_settle_work_on_an_event_loop_of_its_own(
    scene: Stage, elsewhere: Elsewhere
) -> None:
    """As a plain function can't await. It must not hang, though the store is open on the server's own loop."""
    external, tasks, handles = scene.tasks.external, list[str](), list[Handle]()
    for number in range(1, 3):
        tasks.append(await scene.client.start("render"))
        handles.append(await elsewhere.given(number))

    async def several() -> None:
        async with scene.tasks.connected():
            await external.report(handles[1], "half way")
            await external.complete(handles[1], "two")
        with pytest.raises(AlreadySettled):
            await external.fail(handles[1], "no memory")

    async with asyncio.timeout(PATIENCE):
        await asyncio.to_thread(asyncio.run, external.complete(handles[0], "one"))
        await asyncio.to_thread(asyncio.run, several())
    assert [text(await scene.client.until(task_id)) for task_id in tasks] == ["'one'", "'two'"]


async def test_so_may_a_plain_start_that_has_the_result_already(tmp_path: Path) -> None:
    def declare(tasks: Tasks) -> None:
        def start(handle: Handle) -> None:
            asyncio.run(tasks.external.complete(handle, "at once"))

        @tasks.tool()
        def quick(task: SyncTaskContext) -> str:
            return task.external("quick", start, returns=str)

    async with stage(tmp_path, declare) as up, asyncio.timeout(PATIENCE):
        assert text(await up.client.finish("quick")) == "at once"


async def test_a_server_that_is_away_need_not_be_up_for_it(tmp_path: Path, elsewhere: Elsewhere) -> None:
    async with stage(tmp_path, elsewhere.declare) as up:
        task_id = await up.client.start("render")
        handle = await elsewhere.given()
    await Tasks(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}")).external.complete(handle, "meanwhile")
    async with stage(tmp_path, elsewhere.declare) as up:
        assert text(await up.client.until(task_id)) == "'meanwhile'"
    assert len(elsewhere.handles) == 1


async def test_in_the_harness_work_is_settled_over_whichever_store_it_has(tmp_path: Path, elsewhere: Elsewhere) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'unused.db'}")
    elsewhere.declare(tasks)

    def store(clock: Clock) -> SQLiteStore:
        return SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}", clock)

    async with Harness(tasks, store=store) as harness:
        task = await harness.call("render")
        await tasks.external.complete(await elsewhere.given(), 7)
        await harness.run()
        assert (await harness.look(task)).value == "7"
    assert not (tmp_path / "unused.db").exists()


async def test_a_store_that_can_not_be_opened_says_so(tmp_path: Path) -> None:
    tasks = Tasks(f"sqlite:///{tmp_path / 'none' / 'tasks.db'}")
    with pytest.raises(StoreUnusable):
        await tasks.external.complete(Handle(TASK, "0", TOKEN))
    with pytest.raises(StoreUnusable):
        async with tasks.connected():
            raise AssertionError
