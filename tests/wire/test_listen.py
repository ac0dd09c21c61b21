"""Contract 7 over HTTP, one server: who is listened to, what is sent, and when it is over.

How each frame has to look is the judge's business (`listening.Judge`).
"""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from perdure.domain.model import Cancelled, Completed, Failed, Failure
from tests.store.support import asks
from tests.support import eventually
from tests.wire.envelopes import EVERYTHING, EXTENSION, INPUT, JSON, NOTHING, TASKS, envelope, meta
from tests.wire.listening import (
    SUBSCRIPTION,
    Listener,
    claimed,
    listen_request,
    listeners,
    listening,
    refused,
)
from tests.wire.support import Stage, stage
from tests.wire.tools import ENTRY, FORM, Tools

UNKNOWN = "tsk_" + "a" * 32
FORM_SCHEMA: JSON = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
QUESTION: JSON = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM_SCHEMA}}
RESULT: JSON = {"content": [{"type": "text", "text": "done"}], "isError": False}


@pytest.fixture
async def idle(tmp_path: Path, tools: Tools) -> AsyncGenerator[Stage]:
    """A server that runs nothing: tasks do what the test does."""
    async with stage(tmp_path, tools.declare, worker=False) as up:
        yield up


# -- how it begins -----------------------------------------------------------------------------------------------------


async def test_it_is_acknowledged_first_then_each_task_is_shown_once_as_tasks_get_shows_it(idle: Stage) -> None:
    tasks = [await idle.client.start("gated") for _ in range(3)]
    async with listening(idle.client, *tasks) as stream:
        assert await stream.begun() == tasks
        for task_id in tasks:
            shown, got = await stream.snapshot(), (await idle.client.get(task_id)).result
            assert _bare(shown) == _bare(got)


async def test_what_is_accepted_keeps_the_order_asked_and_duplicates_fold(idle: Stage) -> None:
    first, second = await idle.client.start("gated"), await idle.client.start("hello", {"name": "you"})
    async with listening(idle.client, second, first, second, second) as stream:
        assert await stream.begun() == [second, first]
        assert [(await stream.snapshot())["taskId"] for _ in range(2)] == [second, first]


@pytest.mark.parametrize("other", [UNKNOWN, "", "x", "tsk_", UNKNOWN.upper(), UNKNOWN + "\n", "tsk_\N{SNOWMAN}"])
async def test_unknown_and_malformed_ids_are_left_out_silently(idle: Stage, other: str) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, other, task_id) as stream:
        assert await stream.begun() == [task_id]
        assert (await stream.snapshot())["taskId"] == task_id


@pytest.mark.parametrize("ids", [[], [UNKNOWN], ["x"]])
async def test_with_nothing_to_listen_to_it_is_acknowledged_and_over(idle: Stage, ids: list[str]) -> None:
    async with listening(idle.client, *ids) as stream:
        assert await stream.begun() == []
        assert await stream.ends() == []


async def test_listening_to_an_id_before_there_is_such_a_task_is_listening_to_nothing(idle: Stage) -> None:
    """An id that is not known yet looks like one that never will be; whoever comes back later finds it."""
    async with listening(idle.client, UNKNOWN) as stream:
        assert await stream.begun() == []
        assert await stream.ends() == []
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id) as stream:
        assert await stream.begun() == [task_id]


@pytest.mark.parametrize("request_id", [7, "7", "a b", 0, "", -1, 2**53 - 1])
async def test_every_frame_carries_the_id_of_the_request_with_its_json_type(idle: Stage, request_id: JSON) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id, id=request_id) as stream:
        await stream.begun()
        await stream.snapshot()
        await idle.store.finish(claim, Completed(RESULT))
        await stream.ends()
        ids = [frame["params"]["_meta"][SUBSCRIPTION] for frame in stream.frames[:-1]]
    assert [json.dumps(each) for each in ids] == [json.dumps(request_id)] * 3


async def test_nothing_between_creation_and_listening_is_missed(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    await idle.store.report(claim, "said before")
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        assert (await stream.snapshot())["statusMessage"] == "said before"


# -- who may listen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [NOTHING, INPUT, {"extensions": {}}, {"extensions": {"com.example/x": {}}}])
async def test_without_the_extension_there_is_no_stream(idle: Stage, capabilities: JSON) -> None:
    """Before any look-up: it is the same answer whatever the ids are."""
    task_id = await idle.client.start("gated")
    for asked in ([task_id], [UNKNOWN], [], "x", None):
        reply = await refused(idle.client, listen_request(asked, capabilities=capabilities))
        assert (reply.status, reply.required) == (400, {"extensions": {EXTENSION: {}}})
    assert listeners(idle) == 0


@pytest.mark.parametrize("bad", [None, "x", 5, {}, [1], [None], [[UNKNOWN]], [UNKNOWN, {}], True])
async def test_task_ids_that_are_no_list_of_strings_are_invalid_params(idle: Stage, bad: JSON) -> None:
    reply = await refused(idle.client, listen_request(bad))
    assert (reply.status, reply.code) == (400, -32602)


@pytest.mark.parametrize("rest", [{"notifications": {"toolsListChanged": True}}, {"notifications": {}}, {}])
async def test_task_ids_beside_notifications_are_invalid_params_and_no_silent_stream(idle: Stage, rest: JSON) -> None:
    task_id = await idle.client.start("gated")
    reply = await idle.client.request("subscriptions/listen", {"taskIds": [task_id], **rest})
    said = "taskIds belongs into notifications, and not beside it"
    assert reply.error == {"code": -32602, "message": said}


async def test_beside_task_ids_that_are_in_their_place_and_without_the_extension_it_is_any_unknown_name(
    idle: Stage,
) -> None:
    task_id = await idle.client.start("gated")
    asked = listen_request([task_id])
    asked["params"]["taskIds"] = ["anything"]
    async with idle.client.streaming(asked) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
    plain = envelope(
        "subscriptions/listen", {"notifications": {"toolsListChanged": True}, "taskIds": []}, capabilities={}
    )
    async with idle.client.streaming(plain) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")


async def test_core_kinds_that_are_none_are_invalid_params_as_the_sdk_says(idle: Stage) -> None:
    for kinds in ({"toolsListChanged": [True]}, {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [1]}):
        reply = await refused(idle.client, listen_request([UNKNOWN], **kinds))
        assert (reply.status, reply.code) == (400, -32602)


async def test_a_version_that_is_not_spoken_is_refused(idle: Stage) -> None:
    request = listen_request([UNKNOWN])
    request["params"]["_meta"] = meta(version="2027-01-01")
    reply = await refused(idle.client, request, {"mcp-protocol-version": "2027-01-01"})
    assert (reply.status, reply.code) == (400, -32022)


async def test_without_an_id_it_is_a_notification_and_nobody_listens(idle: Stage) -> None:
    request = listen_request([await idle.client.start("gated")])
    del request["id"]
    reply = await idle.client.exchange(request)
    assert (reply.status, reply.raw) == (202, b"")
    assert listeners(idle) == 0


async def test_there_is_no_stream_by_get_and_none_to_resume(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    fields = [("mcp-protocol-version", "2026-07-28"), ("accept", "text/event-stream")]
    reply = await idle.client.speak(b"", fields, request="GET /mcp")
    assert reply.status == 405
    async with listening(idle.client, task_id, extra={"last-event-id": "5"}) as stream:
        await stream.begun()
        await stream.snapshot()


async def test_a_client_that_takes_no_stream_gets_none(idle: Stage) -> None:
    request = listen_request([await idle.client.start("gated")])
    assert (await idle.client.exchange(request, {"accept": "application/json"})).status == 406
    assert listeners(idle) == 0


# -- what is sent ------------------------------------------------------------------------------------------------------


async def test_each_change_is_one_snapshot_equal_to_what_tasks_get_says(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        await stream.snapshot()
        await idle.store.report(claim, "one")
        await _shows(idle, stream, task_id)
        await idle.store.report(claim, "two")
        await _shows(idle, stream, task_id)
        await idle.store.park(claim, asks(form=QUESTION))
        await _shows(idle, stream, task_id)
        await idle.client.update(task_id, {"form": FORM})
        await _shows(idle, stream, task_id)


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(RESULT),
        Completed({**RESULT, "isError": True}),
        Failed(Failure(-32050, "out of paper", {"hint": "none"}), "out of paper"),
        Cancelled(),
    ],
)
async def test_the_last_snapshot_says_how_it_ended_and_then_the_stream_ends(
    idle: Stage, outcome: Completed | Failed | Cancelled
) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        await stream.snapshot()
        await idle.store.finish(claim, outcome)
        (last,) = await stream.ends()
        assert _bare(last) == _bare((await idle.client.get(task_id)).result)
        assert await stream.frame() is None


async def test_a_task_that_is_over_already_is_shown_and_the_stream_ends(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    await idle.client.cancel(task_id)
    async with listening(idle.client, task_id) as stream:
        assert await stream.begun() == [task_id]
        assert [task["status"] for task in await stream.ends()] == ["cancelled"]


async def test_it_ends_with_the_last_of_its_tasks(idle: Stage) -> None:
    tasks = [await idle.client.start("gated") for _ in range(3)]
    async with listening(idle.client, *tasks) as stream:
        await stream.begun()
        for _ in tasks:
            await stream.snapshot()
        for task_id in tasks[:2]:
            await idle.client.cancel(task_id)
            assert (await stream.snapshot())["taskId"] == task_id
        assert listeners(idle) == 1
        await idle.client.cancel(tasks[2])
        assert [task["taskId"] for task in await stream.ends()] == tasks[2:]
    assert listeners(idle) == 0


async def test_only_the_questions_that_the_listener_declared_are_shown(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    await idle.store.park(await claimed(idle, "gated"), asks(form=QUESTION, roots={"method": "roots/list"}))
    forms: JSON = {**TASKS, "elicitation": {"form": {}}}
    for capabilities, keys in ((TASKS, None), (forms, ["form"]), (EVERYTHING, ["form", "roots"])):
        async with listening(idle.client, task_id, capabilities=capabilities) as stream:
            await stream.begun()
            task = await stream.snapshot()
            got = (await idle.client.get(task_id, capabilities=capabilities)).result
        assert _bare(task) == _bare(got)
        assert (list(task["inputRequests"]) if "inputRequests" in task else None) == keys


async def test_a_whole_task_is_followed_from_its_creation_to_its_result(scene: Stage, tools: Tools) -> None:
    task_id = await scene.client.start("ask_twice")
    async with listening(scene.client, task_id) as stream:
        await stream.begun()
        assert list((await stream.reaches("input_required"))["inputRequests"]) == ["form"]
        await scene.client.update(task_id, {"form": FORM})
        asked = await stream.until(lambda task: "entry" in task.get("inputRequests", {}))
        assert list(asked["inputRequests"]) == ["entry"]
        await scene.client.update(task_id, {"entry": ENTRY})
        assert (await stream.reaches())["result"]["structuredContent"] == {"result": "accept, accept"}
        assert await stream.ends() == []


async def test_two_streams_for_one_task_hear_the_same_and_the_end_of_one_is_not_the_others(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id, id="first") as first:
        async with listening(idle.client, task_id, id="second") as second:
            for stream in (first, second):
                await stream.begun()
                await stream.snapshot()
            await idle.store.report(claim, "to both")
            one, other = await first.snapshot(), await second.snapshot()
            assert _bare(one) == _bare(other)
        await eventually(lambda: listeners(idle) == 1, "the second is still there")
        await idle.store.finish(claim, Completed(RESULT))
        assert [task["status"] for task in await first.ends()] == ["completed"]


async def test_one_id_in_two_requests_is_two_streams(idle: Stage) -> None:
    tasks = [await idle.client.start("gated") for _ in range(2)]
    async with listening(idle.client, tasks[0], id=1) as first, listening(idle.client, tasks[1], id=1) as second:
        for stream, task_id in zip((first, second), tasks, strict=True):
            assert await stream.begun() == [task_id]
            await stream.snapshot()
        for stream, task_id in zip((first, second), tasks, strict=True):
            await idle.client.cancel(task_id)
            assert [task["taskId"] for task in await stream.ends()] == [task_id]


async def test_no_progress_and_no_log_message_comes_on_it(scene: Stage, tools: Tools) -> None:
    """Though the request asks for both; what else than snapshots came the judge would have refused."""
    task_id = await scene.client.start("say", {"words": ["one", "two"]})
    options: JSON = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "debug"}
    async with listening(scene.client, task_id, also=options) as stream:
        await stream.begun()
        await stream.until(lambda task: task.get("statusMessage") == "one")
        tools.gate.set()
        await stream.ends()


async def test_a_large_result_comes_whole(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    text = "x" * 3_000_000
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        await stream.snapshot()
        await idle.store.finish(claim, Completed({"content": [{"type": "text", "text": text}]}))
        (last,) = await stream.ends()
    assert last["result"]["content"] == [{"type": "text", "text": text}]


async def test_states_may_be_folded_but_never_go_backwards_and_the_last_one_comes(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        for count in range(100):
            await idle.store.report(claim, f"{count}")
        await idle.store.finish(claim, Completed(RESULT))
        shown = await stream.ends()
    counts = [int(task["statusMessage"]) for task in shown if task.get("statusMessage")]
    assert counts == sorted(set(counts))
    assert shown[-1]["status"] == "completed"


# -- and the task ------------------------------------------------------------------------------------------------------


async def test_closing_the_stream_does_nothing_to_the_task(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    before = idle.dump()
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
    await eventually(lambda: listeners(idle) == 0, "it is still open")
    assert idle.dump() == before


async def test_listening_again_and_again_shows_each_time_how_it_stands(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    for count in range(20):
        await idle.store.report(claim, f"{count}")
        async with listening(idle.client, task_id, id=count) as stream:
            await stream.begun()
            assert (await stream.snapshot())["statusMessage"] == f"{count}"
    await eventually(lambda: listeners(idle) == 0, "some are still open")


async def test_a_task_that_expires_is_shown_as_failed_and_the_stream_ends(tmp_path: Path, tools: Tools) -> None:
    now = 1_800_000_000_000
    async with stage(tmp_path, tools.declare, clock=lambda: now, worker=False) as up:
        task_id = await up.client.start("must")
        async with listening(up.client, task_id) as stream:
            await stream.begun()
            assert (await stream.snapshot())["status"] == "working"
            now += 15 * 60_000
            (last,) = await stream.ends()
        assert (last["status"], last["error"]["code"]) == ("failed", -32603)
        now += 86_400_000
        await eventually(lambda: not dict(up.dump())["task"], "it was never deleted")
        async with listening(up.client, task_id) as stream:
            assert await stream.begun() == []
            await stream.ends()


def _bare(task: JSON) -> JSON:
    """What a snapshot and a response say of the task itself."""
    return {name: value for name, value in task.items() if name not in ("resultType", "_meta")}


async def _shows(idle: Stage, stream: Listener, task_id: str) -> None:
    assert _bare(await stream.snapshot()) == _bare((await idle.client.get(task_id)).result)
