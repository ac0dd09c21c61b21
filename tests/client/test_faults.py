"""What errors mean for who waits, when to ask again, and what becomes of HTTP's own errors."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from httpx2 import _sse as sse  # pyright: ignore[reportPrivateUsage]
from hypothesis import given
from hypothesis import strategies as st
from mcp.client import Client, streamable_http
from mcp.server.mcpserver import Context, MCPServer
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp_types import ToolListChangedNotification
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.client import (
    HTTP,
    AnswerTooLarge,
    Disconnected,
    Malformed,
    RequestRefused,
    Snapshot,
    TaskExpired,
    TaskLost,
    Tasks,
    Unsure,
    faults,
    pace,
)
from perdure.store.sqlite import SQLiteStore
from tests.client.support import connected, text
from tests.support import PATIENCE
from tests.wire.support import Stage, hosting, serving, tasks_on
from tests.wire.tools import Tools

FULL = MCPError(-32000, "full", {"retryAfterMs": 700})


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (MCPError(-32602, "Task not found"), TaskLost),
        (MCPError(-32602, "Task has expired"), TaskExpired),
        (MCPError(-32603, "Internal error"), RequestRefused),
        (MCPError(-32601, "Method not found"), RequestRefused),
        (MCPError(-32603, "Server returned an error response"), None),
        (MCPError(-32000, "Connection closed"), None),
        (MCPError(-32001, "timed out"), None),
        (MCPError(-32700, "broken"), None),
        (FULL, None),
        (TimeoutError(), None),
        (RuntimeError("no session"), Disconnected),
        (Malformed("t", "nonsense"), Malformed),
    ],
)
def test_some_errors_end_a_wait_and_the_others_pass(error: Exception, ends: type | None) -> None:
    fault = faults.judge(error, "t")
    assert (None if fault.ends is None else type(fault.ends)) is ends


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (MCPError(-32603, "Internal error"), True),
        (MCPError(-32601, "Not Found"), True),
        (MCPError(-32600, "Unexpected content type: text/html"), True),
        (MCPError(-32600, "server answered a request with 202 Accepted"), True),
        (MCPError(-32600, "HTTP status 401"), False),
        (MCPError(-32601, "Method not found"), False),
        (MCPError(-32602, "Task not found"), False),
    ],
)
def test_what_may_be_a_bad_moment_of_a_proxy_is_borne_for_a_minute(error: Exception, may_pass: bool) -> None:
    fault, grace = faults.judge(error, "t"), faults.Grace()
    ended = [grace.ended(fault, now) is not None for now in (1_000.0, 1_059.0, 1_060.0)]
    assert ended == [not may_pass, not may_pass, True]
    assert fault.ends is not None


@pytest.mark.parametrize(
    ("data", "after"),
    [
        ({"retryAfterMs": 700}, 0.7),
        ({"retryAfterMs": -1}, 0.0),
        ({"retryAfterMs": True}, 0.0),
        ({"retryAfterMs": "1"}, 0.0),
        ({"retryAfterMs": 1e300}, 0.0),
        ("soon", 0.0),
        ({}, 0.0),
    ],
)
def test_a_hint_is_a_number_of_milliseconds(data: Any, after: float) -> None:
    assert faults.judge(MCPError(-32000, "full", data), "t").after == after


@pytest.mark.parametrize(
    ("error", "may"),
    [
        (MCPError(-32602, "Invalid params"), False),
        (FULL, False),
        (MCPError(-32000, "Connection closed"), True),
        (MCPError(-32000, "gone", {faults.UNREACHABLE: True, "retryAfterMs": 5}), True),
        (MCPError(-32000, "HTTP status 429", {faults.NOT_BEGUN: True}), False),
        (MCPError(-32000, "HTTP status 429", {faults.NOT_BEGUN: True, "retryAfterMs": 0}), False),
        (MCPError(-32600, "HTTP status 401"), False),
        (MCPError(-32603, "Server returned an error response"), True),
        (MCPError(-32603, "Internal error"), False),
        (MCPError(-32001, "Request 'tools/call' timed out"), True),
        (MCPError(-32000, "SSE stream ended without a response"), True),
        (MCPError(-32700, "Failed to parse JSON response: EOF"), True),
        (MCPError(-32600, "server answered a request with 202 Accepted"), True),
        (MCPError(-32600, "Unexpected content type: text/html"), True),
        (MCPError(-32000, "my own failure"), False),
        (MCPError(-32000, "Connection closed", {"mine": True}), False),
        (MCPError(-32001, "my own time-out"), False),
        (MCPError(-32050, "my own code"), False),
        (TimeoutError(), True),
        (AnswerTooLarge("t", "large"), False),
    ],
)
def test_what_a_server_refuses_has_not_happened_and_what_nobody_heard_may_have(error: Exception, may: bool) -> None:
    assert faults.may_have_arrived(error) is may


def test_the_errors_that_the_sdk_makes_up_still_begin_as_they_are_known_by() -> None:
    words = inspect.getsource(streamable_http) + inspect.getsource(jsonrpc_dispatcher)
    for beginning in itertools.chain.from_iterable(faults.MADE_UP.values()):
        assert f'"{beginning}' in words.replace("Request {method!r}", "Request '")
    assert '"Not Found"' in words
    assert "Server-sent event exceeded" in inspect.getsource(sse)


fractions = st.floats(0, 1)


@given(st.none() | st.integers(1, 10**7), fractions, st.integers(1, 5_000))
def test_a_poll_is_never_sooner_than_the_server_said(poll_ms: int | None, chance: float, crowd: int) -> None:
    snapshot = Snapshot("t", "working", poll_ms=poll_ms)
    told = pace.DEFAULT_POLL if poll_ms is None else poll_ms / 1000
    assert told <= pace.interval(snapshot, chance, crowd) <= max(told, 0.05, crowd / 75) * 1.1 + 1e-9
    assert pace.listened(snapshot, chance) >= max(told, pace.BACKSTOP)


@given(st.integers(1, 10_000), st.floats(0, 1_000), fractions)
def test_pauses_after_errors_grow_to_a_bound_and_keep_to_the_hint(failures: int, hint: float, chance: float) -> None:
    wait = pace.backoff(failures, hint, chance)
    assert max(hint, 0.5) <= wait <= max(hint, 60.0) * 1.1 + 1e-9
    assert wait <= pace.backoff(failures + 1, hint, 1.0)


# -- HTTP --------------------------------------------------------------------------------------------------------------


async def _broken() -> AsyncGenerator[bytes]:
    yield b'{"jsonrpc": "2.0", '
    raise ConnectionError


async def _answer(request: Request) -> Response:
    match request.path_params["how"]:
        case "breaks":
            return StreamingResponse(_broken(), media_type="application/json")
        case "busy":
            return Response("slow down", 429, {"retry-after": "3"})
        case "hurried":
            return JSONResponse({"error": "slow down"}, 429, {"retry-after": "0"})
        case "stranger":
            return Response("who are you?", 401)
        case "token":
            return JSONResponse({"error": "invalid_token"}, 401)
        case "forbids":
            return JSONResponse({"jsonrpc": "2.0", "id": 1, "error": {"code": -32001, "message": "no"}}, 403)
        case "gone":
            return Response("gone", 404)
        case "proxy":
            return Response("<html>", 502, {"retry-after": "tomorrow"})
        case "says":
            return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "mine"}}, 503)
        case how:
            return Response(how, 500)


@asynccontextmanager
async def errors() -> AsyncGenerator[str]:
    async with hosting(Starlette(routes=[Route("/{how}", _answer, methods=["POST"])])) as (_, url):
        yield url


async def posted(url: str) -> tuple[int, str, Any]:
    transport = HTTP(url)
    async with transport.client() as http:
        response = await http.post(url, json={}, headers={"mcp-method": "tasks/get"})
    if not response.headers.get("content-type", "").startswith("application/json"):
        return response.status_code, response.text, None
    error = response.json()["error"]
    assert error["code"] in (-32000, -32001, -32600)
    assert (error["code"] == -32600) is error["message"].startswith("HTTP status 401")
    return response.status_code, error["message"], error.get("data")


async def test_errors_of_http_become_answers_and_answers_stay_as_they_are() -> None:
    async with errors() as url:
        status, message, data = await posted(f"{url}/breaks")
        assert (status, data) == (503, {faults.UNREACHABLE: True})
        assert message.startswith("The server can't be reached: ")
        assert await posted(f"{url}/busy") == (503, "HTTP status 429", {"retryAfterMs": 3000, faults.NOT_BEGUN: True})
        hurried = {"retryAfterMs": 0, faults.NOT_BEGUN: True}
        assert await posted(f"{url}/hurried") == (503, "HTTP status 429", hurried)
        assert await posted(f"{url}/proxy") == (503, "HTTP status 502", {faults.UNREACHABLE: True})
        assert await posted(f"{url}/says") == (503, "mine", None)
        assert await posted(f"{url}/forbids") == (403, "no", None)
        for what_does_not_pass in ("stranger", "token"):
            status, message, data = await posted(f"{url}/{what_does_not_pass}")
            assert (status, message.partition(": ")[0], data) == (401, "HTTP status 401", None)
        for as_the_sdk_has_it in ((404, "gone", None), (500, "other", None)):
            assert await posted(f"{url}/{as_the_sdk_has_it[1]}") == as_the_sdk_has_it
    assert (await posted(url))[:2] == (503, "The server can't be reached: ConnectError")


class Guard:
    """Lets everybody in, until the token is past its time. A middleware."""

    refusal: Response | None = None

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refuses = self.refusal is not None and scope["type"] == "http"
        await (self.refusal if refuses and self.refusal else self._app)(scope, receive, send)


@pytest.mark.parametrize("refusal", [Response("who?", 401), JSONResponse({"error": "invalid_token"}, 401)])
async def test_a_token_that_is_past_its_time_ends_a_wait_and_makes_no_call_unsure(
    tmp_path: Path, tools: Tools, refusal: Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    mcp = served.server("wire", version="1.0")
    tools.declare(served)
    app = mcp.streamable_http_app()
    app.add_middleware(Guard)
    tasks = Tasks()
    async with hosting(app) as (_, url), connected(f"{url}/mcp", tasks) as client:
        handle = await tasks.start(client, "gated")
        monkeypatch.setattr(Guard, "refusal", refusal)
        with pytest.raises(RequestRefused, match=r"HTTP status 401: .* token"):
            await handle.result(PATIENCE)
        with pytest.raises(MCPError, match="HTTP status 401"):
            await tasks.start(client, "gated")
    assert [record.task_id for record in tasks.journal.records()] == [handle.id]


PAGE = Response("<html>", 404, media_type="text/html")


NOT_GZIP = Response("{}", 200, {"content-encoding": "gzip"}, "application/json")


@pytest.mark.parametrize("page", [PAGE, Response("<html>", 200, media_type="text/html"), NOT_GZIP])
async def test_a_page_of_a_proxy_in_between_does_not_end_a_wait(
    tmp_path: Path, tools: Tools, page: Response, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tasks_on(SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}"))
    mcp = served.server("wire", version="1.0")
    served.tool(poll_interval="100ms")(tools.gated)
    app = mcp.streamable_http_app()
    app.add_middleware(Guard)
    tasks = Tasks()
    tools.gate.set()
    async with hosting(app) as (_, url), connected(f"{url}/mcp", tasks) as client:
        handle = await tasks.start(client, "gated")
        monkeypatch.setattr(Guard, "refusal", page)
        wait = asyncio.create_task(handle.result(PATIENCE))
        await asyncio.sleep(0.5)
        monkeypatch.setattr(Guard, "refusal", None)
        assert text(await wait) == "through"


async def test_what_is_not_encoded_as_it_says_is_no_answer_and_its_connection_is_given_back() -> None:
    odd = MCPError(-32603, "The answer can't be read: DecodingError", {faults.UNREACHABLE: True})

    async def answer(_: Request) -> Response:
        return NOT_GZIP

    transport = HTTP("", verify=False)
    async with (
        hosting(Starlette(routes=[Route("/", answer, methods=["POST"])])) as (_, url),
        transport.client() as http,
    ):
        for _ in range(150):  # more than there are in a pool
            response = await http.post(url, json={}, headers={"mcp-method": "tasks/get"})
            assert response.json()["error"] == {"code": odd.code, "message": odd.message, "data": odd.data}
    assert faults.judge(odd, "t").is_odd
    assert faults.may_have_arrived(odd)


async def test_a_header_may_hold_any_byte() -> None:
    async def answer(_: Request) -> Response:
        response = JSONResponse({"result": {}})
        response.raw_headers.append((b"x-through", "über".encode("latin-1")))
        return response

    transport = HTTP("", verify=False)
    async with (
        hosting(Starlette(routes=[Route("/", answer, methods=["POST"])])) as (_, url),
        transport.client() as http,
    ):
        response = await http.post(url, json={}, headers={"mcp-method": "tasks/get"})
        assert (response.json(), response.headers["x-through"]) == ({"result": {}}, "über")


async def test_one_transport_is_for_one_client_at_a_time(scene: Stage) -> None:
    transport = HTTP(scene.client.url, verify=False, trust_env=False)
    for _ in range(2):
        async with transport:
            with pytest.raises(RuntimeError, match="in use"):
                await transport.__aenter__()


async def test_a_server_that_is_away_is_not_taken_for_one_of_the_handshake_era() -> None:
    async with errors() as url:
        pass
    with pytest.raises(ExceptionGroup) as away:
        async with connected(f"{url}/mcp", Tasks()):
            pass
    assert away.group_contains(httpx2.ConnectError)


async def test_a_token_that_the_server_does_not_take_is_named_where_a_client_connects() -> None:
    async with errors() as url:
        with pytest.raises(ExceptionGroup) as refused:
            async with connected(f"{url}/stranger", Tasks()):
                pass
    assert refused.group_contains(MCPError, match="HTTP status 401: .* token")


# -- how much is taken -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_stream", [True, False])
async def test_a_large_result_comes_through_and_one_past_the_bound_says_so_and_runs_once(as_stream: bool) -> None:
    """The SDK's own bound on an event is 1 MiB, past which it says that the connection was lost."""
    mcp: MCPServer[Any] = MCPServer("large")
    tasks, ran = Tasks(), [0]

    @mcp.tool(structured_output=False)
    async def large(size: int, ctx: Context[Any, Any]) -> str:
        ran[0] += 1
        if as_stream:
            # The SDK answers by a stream then.
            await ctx.session.send_notification(ToolListChangedNotification())
        return "x" * size

    transport = HTTP("", verify=False, max_bytes=3 * 2**20)
    async with serving(mcp) as (_, transport.url), Client(transport, extensions=[tasks]) as client:
        assert len(text(await (await tasks.start(client, "large", {"size": 2**21})).result())) == 2**21
        with pytest.raises(Unsure, match="max_bytes") as unsure:
            await tasks.start(client, "large", {"size": 3 * 2**20})
        assert isinstance(unsure.value.__cause__, AnswerTooLarge)
    assert ran == [2]


async def test_a_body_that_is_larger_than_the_bound_is_read_no_further() -> None:
    sent = [0]

    async def endless() -> AsyncGenerator[bytes]:
        for _ in range(2_000):
            sent[0] += 1
            await asyncio.sleep(0)
            yield b" " * 65_536

    async def answer(request: Request) -> Response:
        return StreamingResponse(endless(), media_type="application/json")

    app = Starlette(routes=[Route("/", answer, methods=["POST"])])
    async with hosting(app) as (_, url), HTTP(url, max_bytes=2**20).client() as http:
        response = await http.post(url, json={}, headers={"mcp-method": "tasks/get"})
    assert response.json()["error"]["data"] == {faults.TOO_LARGE: 2**20}
    assert sent[0] < 2_000
