"""External work settled over HTTP: who may, what is read, and what each answer says."""

import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.routing import Route

from perdure import ConfigurationError, Limits, Tasks
from perdure.domain.journal import EntryState
from perdure.store.sqlite import SQLiteStore
from perdure.wire.callbacks import Callbacks
from tests.domain.test_handles import NO_HANDLES, TASK, TOKEN
from tests.tools.elsewhere import Elsewhere
from tests.tools.test_external import text
from tests.wire.envelopes import JSON
from tests.wire.support import Client, Stage, hosting, stage

BOUND = Limits().request_body
UNKNOWN = (401, b'{"error":"Unknown handle"}')


class Hook(Client):
    """Posts to the callback route of a server."""

    async def say(self, handle: object, body: object) -> tuple[int, bytes]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = await self.post(raw, [("authorization", f"Bearer {handle}")])
        return reply.status, reply.raw


@pytest.fixture
def elsewhere() -> Elsewhere:
    return Elsewhere()


@pytest.fixture
async def scene(tmp_path: Path, elsewhere: Elsewhere) -> AsyncGenerator[Stage]:
    def declare(tasks: Tasks) -> None:
        elsewhere.declare(tasks)

    async with stage(tmp_path, declare, limits=Limits(step_result=BOUND - 100)) as up:
        up.tasks.callbacks(up.mcp)
        async with hosting(up.mcp.streamable_http_app()) as (http, url):
            # The app that `stage` serves was made before there was the route.
            up.client = Client(http, f"{url}/mcp")
            up.http = http
            yield up


@pytest.fixture
def hook(scene: Stage) -> Hook:
    return Hook(scene.http, scene.client.url.replace("/mcp", "/perdure/external"))


async def test_a_result(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    for _ in range(2):
        assert await hook.say(handle, {"result": {"frames": [1, None]}}) == (204, b"")
    assert text(await scene.client.until(task_id)) == "{'frames': [1, None]}"


async def test_no_result_is_one_too(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    task_id = await scene.client.start("render")
    assert await hook.say(await elsewhere.given(), {"result": None}) == (204, b"")
    assert text(await scene.client.until(task_id)) == "None"


async def test_an_error_and_a_message(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    assert await hook.say(handle, {"message": "half way"}) == (204, b"")
    assert (await scene.client.get(task_id)).result["statusMessage"] == "half way"
    assert await hook.say(handle, {"error": "no such scene"}) == (204, b"")
    assert (await scene.client.until(task_id))["result"]["isError"] is True
    assert (await scene.store.inspect(task_id)).journal.entries["0"].state is EntryState.FAILED


async def test_the_scheme_may_be_written_in_any_case(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    await scene.client.start("render")
    handle = await elsewhere.given()
    reply = await hook.post(b'{"result": 1}', [("authorization", f"bEARER   {handle}")])
    assert reply.status == 204


async def test_a_body_that_says_nothing_is_refused_with_what_it_has_to_be(
    scene: Stage, elsewhere: Elsewhere, hook: Hook
) -> None:
    task_id = await scene.client.start("render")
    handle = await elsewhere.given()
    before = (await scene.store.inspect(task_id)).journal.entries["0"]
    shapeless: list[JSON] = [
        {}, [], None, 5, "result", {"result": 1, "error": "2"}, {"result": 1, "more": 2}, {"error": None},
        {"error": {"code": 1}}, {"message": 5}, {"Result": 1},
    ]  # fmt: skip
    for body in shapeless:
        status, raw = await hook.say(handle, body)
        assert (status, json.loads(raw)["error"][:26]) == (400, "The body has to be one of "), body
    no_json = [b"", b"{", b"result=1", b"\xff\xfe\x00", b'{"result": ' + b"9" * 5000 + b"}", b"[" * 100_000]
    for body in no_json:
        assert await hook.say(handle, body) == (400, b'{"error":"The body is no JSON"}'), body[:20]
    not_storable = [b'{"result": NaN}', b'{"result": "\\ud800"}', b'{"result": ' + b"[" * 200 + b"]" * 200 + b"}"]
    for body in not_storable:
        status, raw = await hook.say(handle, body)
        assert (status, json.loads(raw)["error"][-23:]) == (400, "can't be stored as JSON"), body[:20]
    assert (await scene.store.inspect(task_id)).journal.entries["0"] == before


async def test_whoever_has_no_handle_hears_the_same_bytes_whatever_they_have(
    scene: Stage, elsewhere: Elsewhere, hook: Hook
) -> None:
    await scene.client.start("render")
    mine = await elsewhere.given()
    await scene.client.start("render")
    other = await elsewhere.given(2)
    gone = f"{TASK}~0~{TOKEN}"
    printable = [bad for bad in NO_HANDLES if bad.isascii() and bad.isprintable() and 0 < len(bad) < 5000]
    forged = [gone, f"{mine.task_id}~0~{other.token}", f"{mine.task_id}~1~{mine.token}", f"{mine} {mine}"]
    for handle in (*printable, *forged):
        assert await hook.say(handle, {"result": 1}) == UNKNOWN, handle
    fields: list[list[tuple[str, str]]] = [
        [],
        [("authorization", "")],
        [("authorization", str(mine))],
        [("authorization", f"Basic {mine}")],
        [("authorization", f"Bearer{mine}")],
        [("authorization", f"Bearer {mine}"), ("authorization", f"Bearer {mine}")],
        [("x-authorization", f"Bearer {mine}")],
    ]
    for each in fields:
        reply = await hook.post(b'{"result": 1}', each)
        assert (reply.status, reply.raw) == UNKNOWN, each
    assert await hook.say(mine, {"result": 1}) == (204, b"")


async def test_a_client_without_a_handle_is_told_what_to_bring(hook: Hook, scene: Stage) -> None:
    response = await scene.http.post(hook.url, json={"result": 1})
    assert response.headers["www-authenticate"] == "Bearer"


async def test_what_is_over_is_a_conflict(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    over = (409, b'{"error":"The work was settled before, or its task is over"}')
    task_id = await scene.client.start("render")
    settled = await elsewhere.given()
    assert await hook.say(settled, {"result": 1}) == (204, b"")
    await scene.client.until(task_id)
    for body in ({"result": 2}, {"error": "late"}, {"message": "late"}):
        assert await hook.say(settled, body) == over
    task_id = await scene.client.start("render")
    cancelled = await elsewhere.given(2)
    await scene.client.cancel(task_id)
    for body in ({"result": 2}, {"error": "late"}, {"message": "late"}):
        assert await hook.say(cancelled, body) == over


async def test_a_body_is_read_up_to_the_bound_and_no_more(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    await scene.client.start("render")
    handle = await elsewhere.given()
    too_large = (413, f'{{"error":"The body has more than {BOUND} bytes (request_body)"}}'.encode())
    assert await hook.say(handle, b'{"message": "' + b"x" * BOUND + b'"}') == too_large
    assert await hook.say(handle, b'{"message": "' + b"x" * (BOUND - 15) + b'"}') == (204, b"")
    status, raw = await hook.say(handle, {"result": "x" * (BOUND - 50)})
    assert (status, b"is the limit" in raw) == (413, True)
    # Announced, and never sent: the answer comes all the same.
    fields = [("authorization", f"Bearer {handle}"), ("content-length", str(10**12))]
    reply = await hook.speak(b"", fields, request="POST /perdure/external")
    assert (reply.status, reply.raw) == too_large


async def said(scene: Stage, handle: object, messages: list[JSON]) -> tuple[int, int]:
    """The status that a request gets whose body comes in these messages, and how many of them were taken."""
    sent: list[Any] = []
    left = [*messages]

    async def receive() -> Any:
        return left.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {handle}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b""}
    await Starlette(routes=[Route("/", Callbacks(scene.tasks.external, Limits).endpoint, methods=["POST"])])(
        scope, receive, send
    )
    return sent[0]["status"], len(messages) - len(left)


async def test_a_body_that_is_not_announced_is_read_up_to_the_bound(scene: Stage, elsewhere: Elsewhere) -> None:
    await scene.client.start("render")
    handle = await elsewhere.given()
    chunks = [{"type": "http.request", "body": b" " * (BOUND // 4), "more_body": True} for _ in range(9)]
    assert await said(scene, handle, chunks) == (413, 5)
    last = {"type": "http.request", "body": b'{"result": 1}', "more_body": False}
    assert await said(scene, handle, [*chunks[:3], last]) == (204, 4)


async def test_without_a_handle_nothing_is_read_at_all(scene: Stage) -> None:
    assert await said(scene, "none", [{"type": "http.request", "body": b"{}", "more_body": False}]) == (401, 0)


async def test_a_sender_that_hangs_up_is_no_crash(scene: Stage, elsewhere: Elsewhere) -> None:
    await scene.client.start("render")
    assert await said(scene, await elsewhere.given(), [{"type": "http.disconnect"}]) == (400, 1)


async def test_it_is_a_post_and_nothing_else(scene: Stage, hook: Hook) -> None:
    for method in ("GET", "PUT", "DELETE"):
        assert (await scene.http.request(method, hook.url)).status_code == 405


async def test_a_store_that_is_away_is_worth_another_try(scene: Stage, elsewhere: Elsewhere, hook: Hook) -> None:
    await scene.client.start("render")
    handle = await elsewhere.given()
    await scene.store.close()
    try:
        response = await scene.http.post(hook.url, json={"result": 1}, headers={"authorization": f"Bearer {handle}"})
    finally:
        await scene.store.open()
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert await hook.say(handle, {"result": 1}) == (204, b"")


async def test_no_log_shows_the_handle(
    scene: Stage, elsewhere: Elsewhere, hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await scene.client.start("render")
    handle = await elsewhere.given()
    for body in (b"{", {"message": "half way"}, {"result": 1}, {"result": 2}):
        await hook.say(handle, body)
    # What this test's own client logs of its requests is its own business.
    ours = [each.getMessage() for each in caplog.records if not each.name.startswith(("httpcore", "httpx"))]
    assert not [line for line in ours if handle.token in line]


# -- where it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "external", "https://example.org/external"])
def test_a_path_begins_with_a_slash(path: str) -> None:
    tasks = Tasks("sqlite:///tasks.db")
    with pytest.raises(ConfigurationError, match="is no path: write for example '/perdure/external'"):
        tasks.callbacks(tasks.server("hooked"), path)


async def test_it_may_be_anywhere_and_works_on_a_server_that_only_takes_callbacks(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    async with stage(tmp_path, elsewhere.declare) as up:
        task_id = await up.client.start("render")
        handle = await elsewhere.given()
        # A server that knows nothing of tasks, beside the one that runs them.
        plain: MCPServer[Any] = MCPServer("hooks")
        Tasks(SQLiteStore(f"sqlite:///{up.database}")).callbacks(plain, "/hooks/done")
        async with hosting(plain.streamable_http_app()) as (http, url):
            assert await Hook(http, f"{url}/hooks/done").say(handle, {"result": 7}) == (204, b"")
        assert text(await up.client.until(task_id)) == "7"
