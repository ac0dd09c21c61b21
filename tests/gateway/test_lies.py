"""Backends that lie, hang or die: a clear error for whoever asked, and no effect on anybody else."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from perdure.domain.errors import StoreUnavailable, TaskNotFound
from perdure.domain.model import Owner
from perdure.domain.routing import Route
from perdure.store.memory import MemoryRoutes
from perdure.wire.identity import ANONYMOUS
from tests.gateway.raw_backend import CAPABILITIES, HANDLE, Asked, Liar, event, liar, response, result, stream
from tests.gateway.support import Front, configured, fronting
from tests.support import eventually
from tests.wire.envelopes import INPUT, envelope
from tests.wire.listening import listening
from tests.wire.support import Stage, stage
from tests.wire.tools import FORM, Tools

CALL: Any = {"name": "bad_thing", "arguments": {}}


class Bad:
    """A backend that says of itself what it should, and answers `tools/call` and `tasks/*` with `said`, as they are.

    None is no answer, ever. `asked` are the methods that came, but for discovery and lists.
    """

    def __init__(self, *said: Any) -> None:
        self.said = [*said]
        self.asked: list[Any] = []

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        method = asked.message["method"]
        if method == "server/discover":
            described = {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", **described)))
        elif method == "tools/list":
            writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", tools=[])))
        else:
            self.asked.append(asked.message)
            said: Any = self.said.pop(0) if self.said else result(asked)
            if said is None:
                await asyncio.Event().wait()
            elif isinstance(said, bytes):
                writer.write(said)
            else:
                writer.write(response(said | {"id": asked.message["id"]}))
        await writer.drain()


@asynccontextmanager
async def beside(good: Stage, bad: Bad, more: str = "") -> AsyncGenerator[tuple[Front, Liar]]:
    """A gateway before a good backend and a bad one."""
    async with liar(bad.answer) as lying, fronting({"bad": lying.url, "good": good.client.url}, more) as front:
        yield front, lying


@pytest.fixture
async def good(tmp_path: Any) -> AsyncGenerator[Stage]:
    tools = Tools()
    async with stage(tmp_path, tools.declare) as up:
        yield up


async def ask(front: Front, method: str = "tools/call", params: Any = None, **options: Any) -> Any:
    return await front.client.exchange(envelope(method, params or CALL, **options))


async def is_well(front: Front) -> None:
    """That the other backend, and the gateway itself, go on as if nothing was."""
    task_id = await front.client.start("good_hello", {"name": "Ada"})
    assert (await front.client.until(task_id))["status"] == "completed"


def said(value: Any) -> Any:
    return {"jsonrpc": "2.0", "result": value}


async def test_a_task_for_a_client_without_the_extension_is_refused_and_cancelled(good: Stage) -> None:
    bad = Bad(said(HANDLE))
    async with beside(good, bad) as (front, _):
        reply = await ask(front, capabilities=INPUT)
        assert (reply.code, reply.error["data"]) == (-32603, {"gateway": True, "backend": "bad"})
        assert b"theirs" not in reply.raw
        await eventually(lambda: len(bad.asked) == 2, "the task was not cancelled")
        assert bad.asked[1]["method"] == "tasks/cancel"
        assert bad.asked[1]["params"]["taskId"] == "theirs-0001"
        assert await front.routes.count() == 0
        await is_well(front)


def streamed(message: Any) -> bytes:
    return stream(event(message))


def result_of(text: str) -> Any:
    return {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete", "content": [], "text": text}}


@pytest.mark.parametrize("status", ["202 A", "205 R", "299 N", "400 B", "429 T", "500 I", "503 S", "999 Z"])
async def test_a_result_is_one_whatever_status_it_came_with(good: Stage, status: str) -> None:
    wrong = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}
    async with beside(good, Bad(response(result_of("done"), status), response(wrong, status))) as (front, _):
        reply = await ask(front)
        assert (reply.status, reply.result["text"]) == (200, "done")
        number = int(status[:3])
        assert (await ask(front)).status == (number if 400 <= number < 600 else 400)


@pytest.mark.parametrize("whole", [response, streamed], ids=["json", "stream"])
async def test_what_comes_behind_a_response_answers_nobody_elses_request(good: Stage, whole: Any) -> None:
    bad = Bad(whole(result_of("the first")) + response(result_of("the first's")), whole(result_of("the second")))
    async with beside(good, bad) as (front, _):
        assert [(await ask(front)).result["text"] for _ in range(2)] == ["the first", "the second"]


WRONG: dict[str, list[Any]] = {
    "taskId": [5, "", "x" * 5_000, "a\0b"],
    "ttlMs": [-1, "soon", [], True],
    "status": ["fine", None, [], {}],
}


@pytest.mark.parametrize("member", WRONG)
@pytest.mark.parametrize("at", range(4))
async def test_a_malformed_handle_is_refused(good: Stage, member: str, at: int) -> None:
    async with beside(good, Bad(said(HANDLE | {member: WRONG[member][at]}))) as (front, _):
        reply = await ask(front)
        assert (reply.code, reply.error["data"]) == (-32603, {"gateway": True, "backend": "bad"})
        assert await front.routes.count() == 0
        await is_well(front)


@pytest.mark.parametrize("other", [Owner("", "other"), Owner("acme", ANONYMOUS.principal)], ids=["user", "tenant"])
async def test_the_task_of_another_owner_is_refused_and_not_cancelled(good: Stage, other: Owner) -> None:
    bad = Bad(said(HANDLE))
    async with beside(good, bad) as (front, _):
        await front.routes.lay(other, "bad", "theirs-0001", None, "tsk_" + "a" * 32)
        assert (await ask(front)).code == -32603
        assert [message["method"] for message in bad.asked] == ["tools/call"]
        assert (await front.routes.find(other, "tsk_" + "a" * 32)).owner == other
        with pytest.raises(TaskNotFound):
            await front.routes.find(ANONYMOUS, "tsk_" + "a" * 32)


async def test_a_task_without_a_route_has_begun_all_the_same_and_its_client_hears_that(good: Stage) -> None:
    class Full(MemoryRoutes):
        async def lay(
            self, owner: Owner, backend: str, backend_task_id: str, ttl_ms: int | None, gateway_id: str
        ) -> Route:
            raise StoreUnavailable

    bad = Bad(said(HANDLE))
    async with liar(bad.answer) as lying, fronting({"bad": lying.url}, routes=Full()) as front:
        reply = await ask(front)
        assert (reply.status, reply.code, dict(reply.fields)["retry-after"]) == (503, -32000, "1")
        # Without this, an error that says when to come back is read as: it was not done, do it again.
        assert reply.error["data"]["dev.perdure/unreachable"] is True
        await eventually(lambda: len(bad.asked) == 2, "the task was not cancelled")


async def test_one_task_twice_for_one_owner_is_one_task(good: Stage) -> None:
    async with beside(good, Bad(said(HANDLE), said(HANDLE))) as (front, _):
        first, second = await ask(front), await ask(front)
        assert first.result["taskId"] == second.result["taskId"] != "theirs-0001"


@pytest.mark.parametrize("status", [None, [], {}], ids=repr)
async def test_a_snapshot_without_a_status_goes_to_who_asked_and_ends_no_route(good: Stage, status: Any) -> None:
    """What it says is the backend's affair; what is noted of it is the gateway's."""
    snapshot = {**HANDLE, "resultType": "complete", "status": status}
    async with beside(good, Bad(said(HANDLE), said(snapshot))) as (front, _):
        task_id = (await ask(front)).result["taskId"]
        assert (await ask(front, "tasks/get", {"taskId": task_id})).result["status"] == status
        assert not (await front.routes.find(ANONYMOUS, task_id)).ended


async def test_a_snapshot_of_another_task_is_an_error(good: Stage) -> None:
    snapshot = {**HANDLE, "resultType": "complete", "taskId": "somebody-elses"}
    async with beside(good, Bad(said(HANDLE), said(snapshot))) as (front, _):
        task_id = (await ask(front)).result["taskId"]
        reply = await ask(front, "tasks/get", {"taskId": task_id})
        assert reply.error["data"]["gateway"] is True
        assert b"somebody" not in reply.raw


async def test_an_id_within_an_error_of_the_backends_is_the_gateways_to_the_client(good: Stage) -> None:
    error = {"jsonrpc": "2.0", "error": {"code": -32602, "message": "no task theirs-0001", "data": ["theirs-0001"]}}
    async with beside(good, Bad(said(HANDLE), error)) as (front, _):
        task_id = (await ask(front)).result["taskId"]
        reply = await ask(front, "tasks/get", {"taskId": task_id})
        assert reply.error == {"code": -32602, "message": f"no task {task_id}", "data": [task_id]}


@pytest.mark.parametrize(
    "answer",
    [
        response({"jsonrpc": "2.0", "id": "another", "result": {}}),
        response(b"{not json"),
        response(b"[]"),
        response({}, "302 Found", location="http://127.0.0.1:9/"),
        response(b"<html>", kind="text/html"),
        stream(event({"jsonrpc": "2.0", "id": "another", "result": {}})),
    ],
    ids=["another id", "no JSON", "a list", "a redirect", "a page", "another id in a stream"],
)
async def test_what_is_no_answer_is_an_error_of_the_gateways(good: Stage, answer: bytes) -> None:
    async with beside(good, Bad(answer)) as (front, _):
        reply = await ask(front)
        assert reply.status == 502
        assert (reply.error["data"]["gateway"], reply.error["data"]["backend"]) == (True, "bad")
        await is_well(front)


async def test_an_answer_that_is_too_large_is_an_error(good: Stage) -> None:
    async with beside(good, Bad(response(b" " * (17 * 1024 * 1024)))) as (front, _):
        assert (await ask(front)).status == 502
        await is_well(front)


async def test_an_answer_may_be_as_large_on_a_stream_as_in_one_piece(good: Stage) -> None:
    large = result_of("x" * 5_000_000)
    async with beside(good, Bad(streamed(large), response(large))) as (front, _):
        for _ in range(2):
            assert len((await ask(front)).result["text"]) == 5_000_000


async def test_a_stream_of_nothing_but_comments_is_an_error(good: Stage) -> None:
    async with beside(good, Bad(stream(b": nothing\n" * 20_000, end=False))) as (front, _):
        reply = await ask(front)
        assert (reply.status, reply.error["data"]["backend"]) == (502, "bad")
        await is_well(front)


async def test_a_backend_that_dies_within_a_stream_leaves_an_error_as_the_last_event(good: Stage) -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    async with beside(good, Bad(stream(event(progress), end=False)[:-2])) as (front, lying):
        lying.answer = _dying(lying.answer)
        body = envelope("tools/call", CALL)
        async with front.client.streaming(body) as answer:
            lines = [line async for line in answer.aiter_lines() if line.startswith("data:")]
        assert "notifications/progress" in lines[0]
        assert '"gateway":true' in lines[1]
        await is_well(front)


def _dying(answer: Any) -> Any:
    async def died(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await answer(asked, writer)
        if asked.message["method"] == "tools/call":
            writer.close()

    return died


async def test_a_backend_that_hangs_costs_its_own_client_a_time_out_and_nobody_else_anything(good: Stage) -> None:
    async with beside(good, Bad(None)) as (front, lying):
        calling = asyncio.create_task(ask(front))
        await eventually(lambda: any(each.message["method"] == "tools/call" for each in lying.asked), "never asked")
        await is_well(front)
        assert not calling.done()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await eventually(lying.hung_up.is_set, "the backend was left waiting")


async def test_a_call_that_the_end_of_the_gateway_cuts_off_is_answered_and_may_have_been_carried_out(
    good: Stage,
) -> None:
    bad = Bad(None)
    async with beside(good, bad) as (front, lying):
        answers: list[Any] = []

        async def call() -> None:
            answers.append(await ask(front))

        async with asyncio.TaskGroup() as group:
            group.create_task(call())
            await eventually(lambda: len(bad.asked) == 1, "it was not asked")
            front.gateway.end_requests()
        assert (answers[0].status, answers[0].code) == (503, -32000)
        assert answers[0].error["data"]["dev.perdure/unreachable"] is True
        await eventually(lying.hung_up.is_set, "the backend does not hear of it")


async def test_snapshots_on_a_stream_that_nobody_asked_for_go_no_further(good: Stage) -> None:
    stranger: Any = {**HANDLE, "taskId": "somebody-elses"}
    ended: Any = {"status": "completed", "result": {"content": []}, "lastUpdatedAt": "2026-11-30T00:00:01.000Z"}
    over: Any = {**HANDLE, **ended}
    for snapshot in (stranger, over):
        del snapshot["resultType"]
    frames: list[Any] = [
        {
            "method": "notifications/subscriptions/acknowledged",
            "params": {"notifications": {"taskIds": ["theirs-0001"]}},
        },
        {"method": "notifications/tasks", "params": stranger},
        {"method": "notifications/message", "params": {"level": "info", "data": "somebody"}},
        {"method": "notifications/tasks", "params": over},
    ]
    whole = stream(*(event({"jsonrpc": "2.0", **frame}) for frame in frames), end=False)
    async with beside(good, Bad(said(HANDLE), whole)) as (front, _):
        task_id = (await ask(front)).result["taskId"]
        request = envelope("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}, id="s")
        async with front.client.streaming(request) as answer:
            text = (await answer.aread()).decode()
        assert "somebody" not in text
        assert "theirs" not in text
        assert text.count(task_id) == 2
        assert '"result":{"resultType":"complete"' in text
        await is_well(front)


ACCEPTED: Any = {"notifications": {"taskIds": ["theirs-0001"]}}
STREAMS: Any = [
    [("acknowledged", ["theirs-0001"])],
    [("acknowledged", {"notifications": [1]})],
    [("acknowledged", {"notifications": {"taskIds": 5}})],
    [("acknowledged", {"notifications": {"taskIds": [["theirs-0001"]]}})],
    [("acknowledged", ACCEPTED), ("tasks", ["theirs-0001"])],
    [("acknowledged", ACCEPTED), ("tasks", {**HANDLE, "status": []})],
    [("acknowledged", ACCEPTED), ("tasks", {**HANDLE, "status": {}, "pollIntervalMs": "soon"})],
]


@pytest.mark.parametrize("frames", STREAMS, ids=lambda frames: repr(frames)[:60])
async def test_what_is_none_on_a_backends_stream_ends_nobody_elses(good: Stage, frames: list[Any]) -> None:
    names = {"acknowledged": "notifications/subscriptions/acknowledged", "tasks": "notifications/tasks"}
    lies = [{"jsonrpc": "2.0", "method": names[name], "params": params} for name, params in frames]
    async with beside(good, Bad(said(HANDLE), stream(*map(event, lies), end=False))) as (front, _):
        theirs, task_id = (await ask(front)).result["taskId"], await front.client.start("good_ask")
        async with listening(front.client, theirs, task_id) as heard:
            assert task_id in await heard.begun()
            await heard.reaches("input_required")
            await front.client.update(task_id, {"form": FORM})
            assert (await heard.reaches("completed"))["taskId"] == task_id


@pytest.mark.parametrize("wrong", [{"status": "odd"}, {"status": []}, {"taskId": "another"}], ids=repr)
async def test_what_is_none_in_answer_to_a_poll_ends_nobody_elses_either(good: Stage, wrong: Any) -> None:
    no_streams = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}}
    lies = [said({**HANDLE, "resultType": "complete", **wrong})] * 99
    async with beside(good, Bad(said(HANDLE), no_streams, *lies)) as (front, lying):
        theirs, task_id = (await ask(front)).result["taskId"], await front.client.start("good_ask")
        async with listening(front.client, theirs, task_id) as heard:
            assert await heard.begun() == [theirs, task_id]
            await heard.reaches("input_required")
            await eventually(lambda: lying.asked[-1].message["method"] == "tasks/get", "it was not polled")
            await front.client.update(task_id, {"form": FORM})
            assert (await heard.reaches("completed"))["taskId"] == task_id


@pytest.mark.parametrize("uris", [5, [["a:b"]], {"a:b": 1}], ids=repr)
async def test_addresses_that_are_none_are_not_acknowledged_and_the_lists_of_others_are(good: Stage, uris: Any) -> None:
    accepted = {"notifications": {"resourceSubscriptions": uris, "toolsListChanged": True}}
    lie = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": accepted}
    bad = Bad(*[stream(event(lie), end=False)] * 9)
    async with liar(bad.answer) as lying:
        config = configured({"bad": lying.url, "good": good.client.url}, at_the_end='addresses = ["c:"]')
        async with fronting({}, config=config) as front:
            core: Any = {"resourceSubscriptions": ["a:b"], "toolsListChanged": True}
            request = envelope("subscriptions/listen", {"notifications": core})
            async with front.client.streaming(request) as answer:
                first = await anext(line async for line in answer.aiter_lines() if line.startswith("data:"))
    assert json.loads(first.removeprefix("data:"))["params"]["notifications"] == {"toolsListChanged": True}


async def test_a_backend_that_can_not_listen_is_polled(good: Stage) -> None:
    error = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}}
    working = said({**HANDLE, "resultType": "complete", "pollIntervalMs": 10})
    over = said(
        {**HANDLE, "resultType": "complete", "status": "cancelled", "lastUpdatedAt": "2026-11-30T00:00:01.000Z"}
    )
    async with beside(good, Bad(said(HANDLE), error, working, working, over)) as (front, _):
        task_id = (await ask(front)).result["taskId"]
        async with listening(front.client, task_id) as heard:
            assert await heard.begun() == [task_id]
            assert [task["status"] for task in await heard.ends()] == ["working", "cancelled"]
