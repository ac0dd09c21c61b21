"""Whatever arrives, the answer is an error of its own, the store stays as it was, and the server goes on serving.

Each case is sent to a server that holds a parked, a running and a finished task; afterwards every table is compared
with what lay there before, and the parked task is looked up once more. One server for the whole module: what a case
broke would show in the next.
"""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import Limits
from tests.support import eventually
from tests.wire import checker
from tests.wire.envelopes import EVERYTHING, JSON, NOTHING, TASKS, Headers, envelope, headers, meta
from tests.wire.support import Reply, Stage, stage
from tests.wire.tools import Tools

METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]
UNKNOWN = "tsk_" + "a" * 32
LONE = "\ud800"
PATIENT = Limits(polls_per_second=1_000_000)
"""One task is asked for again and again."""
ERRORS = {-32700, -32600, -32601, -32602, -32020, -32021, -32022}


class Arena:
    """A server with something to lose."""

    def __init__(self, scene: Stage, parked: str, running: str, done: str) -> None:
        self.scene = scene
        self.parked = parked
        self.running = running
        self.done = done
        self._before = scene.dump()

    async def unharmed(self, case: object) -> None:
        assert self.scene.dump() == self._before, case
        task = (await self.scene.client.get(self.parked)).result
        assert task["status"] == "input_required", case

    async def refused(self, content: bytes, fields: Headers | None = None, case: object = None) -> Reply:
        """Send exactly this: an error comes back, and nothing is harmed."""
        found: Headers = headers(None) | {"mcp-method": "tasks/get"} | (fields or {})
        reply = await self.scene.client.post(content, [(name, value) for name, value in found.items() if value])
        assert 400 <= reply.status < 500 or (reply.body is not None and "error" in reply.body), case
        if reply.body is not None:
            id = reply.body.get("id")  # noqa: A001 - the word for it
            checker.check({"method": "tasks/get", "id": id}, reply.status, reply.body)
            assert reply.code in ERRORS, case
        await self.unharmed(case)
        return reply

    async def wrong(self, body: JSON, **fields: str) -> Reply:
        """The same for a JSON body, with the headers that belong to it."""
        return await self.refused(json.dumps(body).encode(), headers(body) | fields, body)


@pytest.fixture(scope="module")
async def arena(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Arena]:
    tools = Tools()
    async with stage(tmp_path_factory.mktemp("arena"), tools.declare, limits=PATIENT) as up:

        @up.mcp.tool()
        def plain(value: Any = None) -> str:
            """A tool that is never a task."""
            return type(value).__name__

        done = (await up.client.finish("hello", {"name": "you"}))["taskId"]
        parked = await up.client.start("ask")
        await up.client.until(parked, "input_required")
        running = await up.client.start("gated")
        await eventually(tools.entered.is_set, "never started")
        yield Arena(up, parked, running, done)


# -- bodies ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" ",
        b"nonsense",
        b"{",
        b"{'jsonrpc': '2.0'}",
        b"\x00",
        b"\xff\xfe\xfd",
        b'{"jsonrpc": "2.0", "id": 1, "method": "\xff"}',
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"n": 1' + b"0" * 5000 + b"}}",
        b'{"jsonrpc": "2.0", "id": 1} {"jsonrpc": "2.0", "id": 2}',
    ],
    ids=lambda content: content[:40].decode("utf-8", "backslashreplace"),
)
async def test_what_is_no_json_is_a_parse_error(arena: Arena, content: bytes) -> None:
    reply = await arena.refused(content)
    assert (reply.status, reply.code, reply.body["id"]) == (400, -32700, None)


async def test_what_is_no_request_is_an_invalid_request(arena: Arena) -> None:
    good = envelope("tasks/get", {"taskId": arena.parked})
    bodies: list[JSON] = [
        *(None, True, 0, -1, 1.5, "text", [], [[]], {}),
        *([good], [good, good]),
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        *(good | {"jsonrpc": value} for value in ANYTHING),
        *(good | {"id": value} for value in ANYTHING if type(value) not in (int, str)),
        *(good | {"method": value} for value in ANYTHING if not isinstance(value, str)),
        *(good | {"params": value} for value in ANYTHING if not isinstance(value, dict) and value is not None),
        {name: value for name, value in good.items() if name != "jsonrpc"},
        {name: value for name, value in good.items() if name != "method"},
    ]
    for body in bodies:
        reply = await arena.wrong(body)
        assert (reply.status, reply.code) == (400, -32600), body


async def test_an_id_of_a_request_that_json_text_can_not_carry_is_refused(arena: Arena) -> None:
    for id in (LONE, f"a{LONE}"):  # noqa: A001 - the word for it
        for method in ("tasks/cancel", "tools/call", "no/such"):
            body = envelope(method, {"taskId": arena.running, "name": "hello", "arguments": {"name": "you"}}, id=id)
            assert (await arena.wrong(body)).code == -32602


async def test_a_body_that_is_too_large_is_refused_unread(arena: Arena) -> None:
    body = envelope("tools/call", {"name": "hello", "arguments": {"name": "x" * (4 << 20)}})
    assert (await arena.wrong(body)).status == 413


async def test_json_that_is_too_deep_to_keep_is_refused(arena: Arena) -> None:
    for depth in (300, 900, 1000, 3000, 20_000):
        deep = "[" * depth + "]" * depth
        params = json.dumps({"name": "hello", "arguments": {"name": 0}, "_meta": meta()}).replace("0}", f"{deep}}}", 1)
        content = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ' + params + "}"
        fields = [*(headers(envelope("tools/call", {"name": "hello"}))).items()]
        reply = await arena.scene.client.post(content.encode(), fields)
        assert "error" in reply.body or reply.result["isError"], depth
        await arena.unharmed(depth)


# -- HTTP --------------------------------------------------------------------------------------------------------------


async def test_other_content_types_and_methods_are_refused_by_http(arena: Arena) -> None:
    good = json.dumps(envelope("tasks/cancel", {"taskId": arena.running})).encode()
    fields = headers(json.loads(good))
    for kind in ("", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert (await arena.refused(good, fields | {"content-type": kind}, kind)).status == 400
    for kind in ("text/html", "application/xml", "text/event-stream"):
        assert (await arena.refused(good, fields | {"accept": kind}, kind)).status == 406
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"):
        reply = await arena.scene.client.speak(good, [*fields.items()], request=f"{method} /mcp")
        assert reply.status == 405, method
        await arena.unharmed(method)
    assert (await arena.scene.client.speak(good, [*fields.items()], request="POST /other")).status == 404
    for line in ("POST", "POST /mcp /mcp", "\x00", "tasks/get /mcp"):
        assert (await arena.scene.client.speak(good, [*fields.items()], request=line)).status >= 400
    await arena.unharmed("HTTP")


async def test_headers_that_http_libraries_would_not_send(arena: Arena) -> None:
    good = json.dumps(envelope("tasks/cancel", {"taskId": arena.running})).encode()
    fields = headers(json.loads(good))
    broken: list[dict[str, str]] = [
        {"content-length": "abc"},
        {"content-length": "-1"},
        {"content-length": "5"},
        {"mcp-name": "\xff\xfe"},
        {"mcp-name": "x" * 10_000},
        {"mcp-method": "\xff"},
        {"mcp-method": "tasks/cancel, tasks/cancel"},
        {"mcp-protocol-version": "2026-07-28, 2026-07-28"},
        {"mcp-protocol-version": "\xff"},
        {"mcp-protocol-version": " "},
        {"transfer-encoding": "nonsense"},
    ]
    for change in broken:
        reply = await arena.scene.client.speak(good, [*(fields | change).items()])
        assert 400 <= reply.status < 500, change
        await arena.unharmed(change)


async def test_the_last_of_two_equal_members_counts_and_is_what_the_header_is_held_against(arena: Arena) -> None:
    """Else a router and the server would act on two different tasks."""
    text = json.dumps(envelope("tasks/cancel", {"taskId": arena.running}))
    doubled = text.replace('"taskId"', f'"taskId": "{UNKNOWN}", "taskId"')
    fields = headers(json.loads(text)) | {"mcp-name": UNKNOWN}
    assert (await arena.refused(doubled.encode(), fields)).code == -32020


# -- parameters --------------------------------------------------------------------------------------------------------

ANYTHING: list[JSON] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    "",
    " ",
    "text",
    LONE,
    [],
    [1],
    {},
    {"a": {}},
    [[[]]],
    "x" * 50_000,
]
IDS: list[JSON] = [
    *ANYTHING,
    *("tsk_", UNKNOWN, UNKNOWN.upper(), f" {UNKNOWN}", f"{UNKNOWN}\n", f"{UNKNOWN}\x00", "tsk_" + "é" * 32, "😀" * 36),
    *(f"tsk_{LONE}", "null", "0", "../../etc/passwd", "' OR 1=1 --", "%", "*", "tsk_%"),
]


@pytest.mark.parametrize("method", METHODS)
async def test_an_id_of_any_kind_is_refused(arena: Arena, method: str) -> None:
    for task_id in IDS:
        body = envelope(method, {"taskId": task_id, "inputResponses": {"form": {"action": "decline"}}})
        long = isinstance(task_id, str) and len(task_id) > 1000
        assert (await arena.wrong(body, **({"mcp-name": ""} if long else {}))).code == -32602, task_id
    for real in (arena.parked, arena.running):
        for task_id in ([real], {"id": real}, f"{real} ", real.upper(), real[:-1], f"{real}a"):
            assert (await arena.wrong(envelope(method, {"taskId": task_id, "inputResponses": {}}))).code == -32602
    assert (await arena.wrong(envelope(method))).code == -32602
    assert (await arena.wrong(envelope(method, {"task_id": arena.running, "inputResponses": {}}))).code == -32602


async def test_input_responses_of_any_kind(arena: Arena) -> None:
    for value in ANYTHING:
        bodies = [envelope("tasks/update", {"taskId": arena.parked, "inputResponses": {"form": value}})]
        if not isinstance(value, dict):
            bodies.append(envelope("tasks/update", {"taskId": arena.parked, "inputResponses": value}))
        for body in bodies:
            assert (await arena.wrong(body)).code == -32602, value
    for task_id in (arena.parked, arena.running, arena.done):
        assert (await arena.wrong(envelope("tasks/update", {"taskId": task_id}))).code == -32602


async def test_what_is_ignored_may_be_anything_but_unrepresentable(arena: Arena) -> None:
    for value in (value for value in ANYTHING if value != LONE):
        for task_id in (arena.parked, arena.running, arena.done):
            reply = await arena.scene.client.update(task_id, {"nobody asked": value})
            assert reply.result["resultType"] == "complete"
            await arena.unharmed(value)


UNREPRESENTABLE = ["NaN", "Infinity", "-Infinity", "1e999", '"\\ud800"', '{"\\udfff": 1}', '["\\ud83d", "\\ude00"]']


async def test_what_json_text_can_not_carry_is_refused_wherever_it_stands(arena: Arena) -> None:
    places: list[tuple[str, JSON]] = [
        ("tools/call", {"name": "hello", "arguments": {"name": "HERE"}}),
        ("tools/call", {"name": "hello", "arguments": "HERE"}),
        ("tools/call", {"name": "plain", "arguments": {"value": "HERE"}}),
        ("tools/call", {"name": "hello", "arguments": {"name": "you"}, "other": "HERE"}),
        ("tools/call", {"name": "hello", "arguments": {"name": "you"}, "_meta": meta() | {"com.example/x": "HERE"}}),
        ("tools/call", {"name": "ask", "inputResponses": {"form": "HERE"}, "requestState": "x"}),
        ("tasks/update", {"taskId": arena.parked, "inputResponses": {"form": "HERE"}}),
        ("tasks/update", {"taskId": arena.parked, "inputResponses": {"other": "HERE"}}),
        ("tasks/get", {"taskId": arena.running, "other": "HERE"}),
        ("tasks/cancel", {"taskId": arena.running, "_meta": meta() | {"com.example/x": "HERE"}}),
        ("tasks/cancel", {"taskId": "HERE"}),
    ]
    for method, params in places:
        for capabilities in (EVERYTHING, TASKS):
            body = envelope(method, params, capabilities=capabilities)
            for value in UNREPRESENTABLE:
                content = json.dumps(body).replace('"HERE"', value).encode()
                fields = headers(body) | ({"mcp-name": ""} if params.get("taskId") == "HERE" else {})
                assert (await arena.refused(content, fields, (method, value))).code == -32602


async def test_a_tool_call_of_any_shape(arena: Arena) -> None:
    for value in ANYTHING:
        if not isinstance(value, str) or value == LONE:
            # The transport compares the header first, and no header says any of these.
            assert (await arena.wrong(envelope("tools/call", {"name": value}))).code in (-32020, -32602), value
        if not isinstance(value, dict) and value is not None:
            assert (await arena.wrong(envelope("tools/call", {"name": "hello", "arguments": value}))).code == -32602
        if not isinstance(value, str) and value is not None:
            call = envelope("tools/call", {"name": "ask", "requestState": value})
            assert (await arena.wrong(call)).code == -32602
        if not isinstance(value, dict) and value is not None:
            responses: JSON = {"name": "ask", "requestState": "x", "inputResponses": value}
            assert (await arena.wrong(envelope("tools/call", responses))).code == -32602
    assert (await arena.wrong(envelope("tools/call"))).code == -32602


async def test_capabilities_of_any_shape(arena: Arena) -> None:
    """Whoever declares nonsense has declared nothing."""
    shapes: list[JSON] = [value for value in ANYTHING if value not in ({}, {"a": {}})]
    shapes += [{"extensions": value} for value in ANYTHING] + [TASKS | {"elicitation": 5}]
    shapes += [
        {"extensions": {"io.modelcontextprotocol/tasks": value}} for value in ANYTHING if not isinstance(value, dict)
    ]
    for capabilities in shapes:
        for method in METHODS:
            params: JSON = {"taskId": arena.running, "inputResponses": {}}
            reply = await arena.wrong(envelope(method, params, capabilities=capabilities))
            assert reply.code in (-32021, -32602), capabilities


METHODS_OF_NO_KIND = [
    *(
        "",
        " ",
        "tasks",
        "tasks/",
        "/get",
        "tasks/get ",
        "TASKS/GET",
        "tasks/get/x",
        "tasks//get",
        "tasks.get",
        "../mcp",
    ),
    *("rpc.discover", "initialize", "ping", "tasks/list", "tasks/result", "é", "😀", "x" * 1000, "\x00", LONE),
]


async def test_methods_of_any_kind(arena: Arena) -> None:
    for method in METHODS_OF_NO_KIND:
        for capabilities in (EVERYTHING, NOTHING):
            reply = await arena.wrong(envelope(method, {"taskId": arena.running}, capabilities=capabilities))
            assert reply.code in (-32601, -32602, -32020), method


# -- anything at all ---------------------------------------------------------------------------------------------------

# Nothing that a strategy makes can be the id of a task of the arena, or an answer that fits: what is drawn is refused,
# or asks for nothing.
texts = st.one_of(
    st.text(max_size=12), st.sampled_from(["taskId", "action", "accept", "_meta", UNKNOWN, LONE, "__proto__"])
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
names = st.sampled_from([*METHODS, "tools/call", "tools/list", "server/discover", "subscriptions/listen", "no/such"])
BOUNDED = settings(max_examples=60)


@BOUNDED
@given(content=st.binary(max_size=200))
async def test_any_bytes_are_answered(arena: Arena, content: bytes) -> None:
    await arena.refused(content)


@BOUNDED
@given(body=values)
async def test_any_json_is_answered(arena: Arena, body: JSON) -> None:
    await arena.refused(json.dumps(body).encode(), case=body)


@BOUNDED
@given(method=st.sampled_from(METHODS), params=st.dictionaries(texts, values, max_size=4), declared=st.booleans())
async def test_any_parameters_of_a_task_method_are_answered(
    arena: Arena, method: str, params: dict[str, JSON], declared: bool
) -> None:
    await arena.wrong(envelope(method, params, capabilities=EVERYTHING if declared else NOTHING))


@BOUNDED
@given(responses=values)
async def test_any_input_responses_are_answered_and_none_of_them_counts(arena: Arena, responses: JSON) -> None:
    body = envelope("tasks/update", {"taskId": arena.parked, "inputResponses": responses})
    reply = await arena.scene.client.exchange(body)
    if "error" in reply.body:
        assert reply.code == -32602
    else:
        assert isinstance(responses, dict)
    await arena.unharmed(body)


@BOUNDED
@given(response=values)
async def test_any_response_to_an_open_question_is_refused(arena: Arena, response: JSON) -> None:
    body = envelope("tasks/update", {"taskId": arena.parked, "inputResponses": {"form": response}})
    assert (await arena.wrong(body)).code == -32602


@BOUNDED
@given(arguments=values, declared=st.booleans())
async def test_any_arguments_that_do_not_fit_are_refused(arena: Arena, arguments: JSON, declared: bool) -> None:
    body = envelope(
        "tools/call", {"name": "hello", "arguments": arguments}, capabilities=TASKS if declared else NOTHING
    )
    reply = await arena.scene.client.exchange(body)
    assert reply.code == -32602 if "error" in reply.body else reply.result["isError"]
    await arena.unharmed(body)


@BOUNDED
@given(capabilities=values, info=values, method=names)
async def test_any_envelope_is_answered(arena: Arena, capabilities: JSON, info: JSON, method: str) -> None:
    params: JSON = {
        "taskId": UNKNOWN,
        "name": "hello",
        "_meta": meta(capabilities) | {"io.modelcontextprotocol/clientInfo": info},
    }
    body = envelope(method, params)
    reply = await arena.scene.client.exchange(body)
    assert reply.status in (200, 400, 404)
    assert reply.body is None or "result" in reply.body or reply.code in ERRORS
    await arena.unharmed(body)
