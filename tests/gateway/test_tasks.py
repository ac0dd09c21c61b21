"""Tasks of several backends through one gateway: their routes, their owners, and what cancels what."""

import asyncio

from perdure.domain import ids
from perdure.wire.identity import ANONYMOUS
from tests.gateway.conftest import Pair
from tests.gateway.support import configured, fronting
from tests.support import eventually
from tests.wire.envelopes import INPUT, envelope
from tests.wire.support import Client
from tests.wire.tools import FORM


def backend_ids(pair: Pair) -> set[str]:
    return {row[1] for stage in (pair.one, pair.two) for row in dict(stage.dump())["task"]}


async def test_a_task_of_each_backend_goes_to_its_end_under_an_id_of_the_gateways(pair: Pair) -> None:
    for tool, name in (("one_hello", "Ada"), ("two_hello", "Eve")):
        task_id = await pair.client.start(tool, {"name": name})
        task = await pair.client.until(task_id)
        assert task["result"]["content"][0]["text"] == f"Hello, {name}!"
        assert ids.parse(task_id) not in backend_ids(pair)


async def test_no_id_of_a_backends_reaches_a_client(pair: Pair) -> None:
    task_id = await pair.client.start("one_hello", {"name": "Ada"})
    (theirs,) = backend_ids(pair)
    for reply in (await pair.client.get(task_id), await pair.client.cancel(task_id), await pair.client.get(theirs)):
        assert theirs.encode() not in reply.raw
    assert (await pair.client.get(theirs)).error == {"code": -32602, "message": "Task not found"}


async def test_a_handle_leads_by_a_route_to_the_task_of_its_backend(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    route = await pair.front.routes.find(ANONYMOUS, task_id)
    assert (route.backend, {route.backend_task_id}) == ("one", backend_ids(pair))


async def test_questions_are_asked_and_answered_through_the_gateway(pair: Pair) -> None:
    task_id = await pair.client.start("two_ask")
    asked = await pair.client.until(task_id, "input_required")
    assert [*asked["inputRequests"]] == ["form"]
    await pair.client.update(task_id, {"form": FORM})
    task = await pair.client.until(task_id)
    assert task["result"]["content"][0]["text"] == "accept True"


async def test_a_task_is_cancelled_by_tasks_cancel(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    await pair.first.entered.wait()
    await pair.client.cancel(task_id)
    assert (await pair.client.until(task_id))["status"] == "cancelled"


async def test_unknown_and_malformed_ids_are_refused_in_the_bytes_of_a_server(pair: Pair) -> None:
    unknown = ids.mint(lambda n: b"\0" * n)
    for task_id in (unknown, "nonsense", ""):
        for method in ("tasks/get", "tasks/cancel"):
            body = envelope(method, {"taskId": task_id})
            assert await _raw(pair.client, body) == await _raw(pair.one.client, body)
    for wrong in ({"taskId": 5}, {}, {"taskId": unknown, "inputResponses": 5}):
        body = envelope("tasks/update", wrong)
        assert await _raw(pair.client, body) == await _raw(pair.one.client, body)


async def test_without_the_extension_nothing_is_looked_up(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    for known in (task_id, "nonsense"):
        reply = await pair.client.get(known, capabilities=INPUT)
        assert reply.required == {"extensions": {"io.modelcontextprotocol/tasks": {}}}


async def test_a_name_that_is_another_tasks_is_refused(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    assert (await pair.client.get(task_id, extra={"mcp-name": "other"})).code == -32020
    assert (await pair.client.get(task_id, extra={"mcp-name": ""})).status == 200


async def test_a_client_that_hangs_up_ends_its_request_and_no_task(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    calling = asyncio.create_task(pair.client.call("one_gated", capabilities=INPUT))
    await eventually(lambda: len(pair.front.gateway.in_flight) == 1, "the call never came")
    await eventually(lambda: pair.first.ran.count("gated") == 2, "the tool never ran")
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await eventually(lambda: "cancelled" in pair.first.ended, "the backend's request was not cancelled")
    assert (await pair.client.get(task_id)).result["status"] == "working"


async def test_notifications_cancelled_ends_the_request_that_it_names_and_no_task(pair: Pair) -> None:
    task_id = await pair.client.start("one_gated")
    body = envelope("tools/call", {"name": "one_gated", "arguments": {}}, id="mine", capabilities=INPUT)
    calling = asyncio.create_task(pair.client.exchange(body))
    await eventually(lambda: pair.first.ran.count("gated") == 2, "the tool never ran")
    assert (await _notify(pair.client, "another")) == 202
    assert not calling.done()
    assert (await _notify(pair.client, "mine")) == 202
    assert (await calling).error["message"] == "Request cancelled"
    await eventually(lambda: "cancelled" in pair.first.ended, "the backend's request was not cancelled")
    assert (await pair.client.get(task_id)).result["status"] == "working"


async def test_another_gateway_on_the_same_table_finds_the_task(pair: Pair) -> None:
    task_id = await pair.client.start("two_hello", {"name": "Eve"})
    backends = {"one": pair.one.client.url, "two": pair.two.client.url}
    async with fronting(backends, routes=pair.front.routes) as other:
        assert (await other.client.until(task_id))["status"] == "completed"


async def test_a_task_of_a_backend_that_is_no_longer_configured_is_kept_and_can_not_be_reached(pair: Pair) -> None:
    task_id = await pair.client.start("two_gated")
    config = configured({"one": pair.one.client.url})
    async with fronting({}, config=config, routes=pair.front.routes) as other:
        reply = await other.client.exchange(envelope("tasks/get", {"taskId": task_id}))
        assert (reply.status, reply.error["data"]["backend"]) == (503, "two")
    assert (await pair.client.get(task_id)).result["status"] == "working"


async def test_that_a_task_is_over_is_noted_on_its_route(pair: Pair) -> None:
    task_id = await pair.client.start("one_must")
    assert not (await pair.front.routes.find(ANONYMOUS, task_id)).ended
    await pair.client.until(task_id)
    assert (await pair.front.routes.find(ANONYMOUS, task_id)).ended


async def _raw(client: Client, body: object) -> tuple[int, bytes]:
    reply = await client.exchange(body)
    return reply.status, reply.raw


async def _notify(client: Client, request_id: str) -> int:
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    return (await client.exchange(body)).status
