"""What a caller gets wrong, and what goes wrong around a call: said at once, and nothing is lost by it."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitResult

from perdure import InvalidDuration
from perdure.client import Snapshot, Tasks, TaskTimedOut, Unsendable
from perdure.client.snapshot import NotATask
from tests.client.spy import Spy, always
from tests.client.support import YES, Person, connected, text
from tests.client.test_manners import GET, UPDATE, asks, served
from tests.client.test_resuming import CALL, spied_on
from tests.support import PATIENCE, eventually
from tests.wire.support import Stage
from tests.wire.tools import Tools

LONE = "\ud800"


@pytest.mark.parametrize(
    "answer", [{"action": "accept", "content": {"name": LONE}}, "yes", None, {"action": object()}, {"n": float("nan")}]
)
async def test_an_answer_that_can_not_be_sent_is_not_put_on_record(scene: Stage, tools: Tools, answer: Any) -> None:
    tasks = Tasks()
    async with connected(scene.client.url, tasks, Person()) as client:
        handle = await tasks.start(client, "ask")
        await eventually(lambda: asks(handle), "it asks")
        with pytest.raises(Unsendable):
            await handle.answer({"form": answer})
        (record,) = tasks.journal.records()
        assert tasks.journal.given(record, "form") is None
        assert await handle.answer({"form": YES}) == {"form"}
        assert text(await handle.result(PATIENCE)) == "accept True"


@pytest.mark.parametrize("said", [ElicitResult(action="accept", content={"ok": LONE}), None])
async def test_a_callback_that_says_what_can_not_be_sent_ends_the_wait_and_may_be_asked_again(
    scene: Stage, said: Any
) -> None:
    tasks, person = Tasks(), Person(**{"All right?": said})
    async with connected(scene.client.url, tasks, person) as client:
        handle = await tasks.start(client, "ask")
        with pytest.raises(Unsendable):
            await handle.result(PATIENCE)
        person.answers["All right?"] = YES
        assert text(await handle.result(PATIENCE)) == "accept True"


async def test_arguments_that_can_not_be_sent_are_not_put_on_record(scene: Stage) -> None:
    tasks = Tasks()
    async with connected(scene.client.url, tasks) as client:
        with pytest.raises(Unsendable):
            await tasks.start(client, "hello", {"name": LONE})
    assert tasks.journal.records() == []


async def test_an_answer_that_was_sent_to_a_question_that_is_still_open_is_sent_once_more(
    tmp_path: Path, tools: Tools
) -> None:
    """The same one, whatever is said by now; and one to a question that is not asked is not sent."""
    spy, tasks, sent = Spy(), Tasks(), list[Any]()

    async def forgetful(ctx: Any, call_next: Any) -> Any:
        if ctx.method == UPDATE:
            sent.append(ctx.params["inputResponses"])
            if len(sent) == 1:
                return {"resultType": "complete"}
        return await spy(ctx, call_next)

    async with (
        spied_on(tmp_path, tools, forgetful) as up,  # pyright: ignore[reportArgumentType]
        connected(up.client.url, tasks, Person()) as client,
    ):
        handle = await tasks.start(client, "ask")
        await eventually(lambda: asks(handle), "it asks")
        assert await handle.answer({"form": YES, "other": YES}) == {"form"}
        assert await handle.answer({"form": {"action": "decline"}}) == {"form"}
        assert text(await handle.result(PATIENCE)) == "accept True"
    assert sent == [{"form": YES.model_dump(mode="json", exclude_none=True)}] * 2


async def test_a_caller_that_is_cancelled_hears_of_that_also_while_the_journal_can_not_be_written(
    tmp_path: Path, tools: Tools
) -> None:
    tasks, person = Tasks(tmp_path / "journal.db"), Person()
    person.gate.clear()
    async with served(tmp_path, tools, Spy(), tasks, person) as client:
        handle = await tasks.start(client, "ask")
        wait = asyncio.create_task(handle.result(PATIENCE))
        await person.opened.wait()
        vars(tasks.journal)["_db"].execute("PRAGMA query_only = ON")
        wait.cancel()
        await asyncio.wait([wait])
        assert wait.cancelled()
    tasks.journal.close()


async def test_a_handle_says_whether_it_is_on_record(tmp_path: Path, tools: Tools) -> None:
    tasks = Tasks(tmp_path / "journal.db")

    def full(answer: dict[str, Any]) -> dict[str, Any]:
        vars(tasks.journal)["_db"].execute("PRAGMA query_only = ON")
        return answer

    spy = Spy()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        assert (await tasks.start(client, "gated")).is_on_record
        assert not (await tasks.start(client, "sized", {"n": 1})).is_on_record
        spy.change[CALL] = full
        assert not (await tasks.start(client, "gated")).is_on_record
    tasks.journal.close()


async def test_a_handle_says_why_its_server_is_not_heard(tmp_path: Path, tools: Tools) -> None:
    spy, tasks = Spy(refuse={GET: always(-32000, "full")}), Tasks(listen=False)
    async with served(tmp_path, tools, spy, tasks) as client:
        handle = await tasks.start(client, "gated")
        assert handle.trouble is None
        with pytest.raises(TaskTimedOut, match=r"does not answer just now \(full") as late:
            await handle.result(0.5)
        assert handle.trouble is late.value.__cause__ is not None
        spy.refuse.clear()
        tools.gate.set()
        assert text(await handle.result(PATIENCE)) == "through"
        assert handle.trouble is None


@pytest.mark.parametrize("bad", [{"status": 7}, {"result": 5}])
async def test_a_task_that_can_be_identified_is_kept_whatever_else_is_wrong_with_it(
    tmp_path: Path, tools: Tools, bad: dict[str, Any]
) -> None:
    spy, tasks = Spy(change={CALL: lambda answer: {**answer, **bad}}), Tasks()
    tools.gate.set()
    async with spied_on(tmp_path, tools, spy) as up, connected(up.client.url, tasks) as client:
        handle = await tasks.start(client, "gated")
        assert [record.task_id for record in tasks.journal.records()] == [handle.id]
        assert text(await handle.result(PATIENCE)) == "through"


def test_an_empty_id_is_none() -> None:
    with pytest.raises(NotATask):
        Snapshot.parse({"taskId": "", "status": "working"})


async def test_bounds_are_durations_as_everywhere_and_what_is_none_is_refused(scene: Stage) -> None:
    with pytest.raises(ValueError, match="on_cancel is one of leave, cancel"):
        Tasks(on_cancel="stop")  # pyright: ignore[reportArgumentType]
    tasks = Tasks(timeout="1 minute", request_timeout=timedelta(seconds=30))
    async with connected(scene.client.url, tasks) as client:
        handle = await tasks.start(client, "gated", timeout="10s")
        with pytest.raises(TaskTimedOut, match=r"0\.2 s"):
            await handle.result("200ms")
        with pytest.raises(InvalidDuration, match="timeout"):
            await handle.result("soon")
        assert (await tasks.resume(client, handle.id, timeout="10s")).id == handle.id
        assert len((await tasks.resume_all(client, timeout="10s")).handles) == 1
