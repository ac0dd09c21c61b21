"""What ends a stream but its tasks, and that nothing of it is left then; and what keeps one from beginning."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from perdure import Limits
from perdure.domain.model import Cancelled, Claim, Demand
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON, headers
from tests.wire.listening import claimed, listen_request, listeners, listening, refused
from tests.wire.support import Client, Stage, stage
from tests.wire.tools import Tools

LARGE = "x" * 2_000_000


@pytest.fixture
async def idle(tmp_path: Path, tools: Tools) -> AsyncGenerator[Stage]:
    async with stage(tmp_path, tools.declare, worker=False) as up:
        yield up


# -- hanging up --------------------------------------------------------------------------------------------------------


async def test_a_client_that_hangs_up_before_anything_was_sent_leaves_nothing_behind(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    for _ in range(10):
        with closing(await connected(idle.client)) as client:
            await ask(client, idle.client, listen_request([task_id]))
    await eventually(lambda: listeners(idle) == 0, "streams are still open")
    async with listening(idle.client, task_id) as stream:
        assert await stream.begun() == [task_id]


# -- not reading -------------------------------------------------------------------------------------------------------


async def test_a_reader_that_stops_reading_is_cut_off_and_the_others_do_not_feel_it(
    idle: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    idle.tasks.middleware.listen.frame_within = 0.5
    large, small = [(await idle.client.start(tool), await claimed(idle, tool)) for tool in ("gated", "stubborn")]
    async with listening(idle.client, small[0]) as reading:
        await reading.begun()
        await reading.snapshot()
        with closing(await connected(idle.client)) as stalled:
            before = len(asyncio.all_tasks())
            await ask(stalled, idle.client, listen_request([large[0], small[0]]))
            await eventually(lambda: listeners(idle) == 2, "it never began")
            count = 0
            while listeners(idle) == 2:
                count += 1
                await idle.store.report(large[1], LARGE)
                await idle.store.report(small[1], f"{count}")
                assert (await reading.snapshot())["statusMessage"] == f"{count}"
            await eventually(lambda: len(asyncio.all_tasks()) <= before, "its request goes on")
            assert "has not read" in caplog.text
        await idle.store.finish(small[1], Cancelled())
        assert [task["status"] for task in await reading.ends()] == ["cancelled"]


async def test_a_stream_that_was_cut_off_is_closed_without_a_result(idle: Stage) -> None:
    idle.tasks.middleware.listen.frame_within = 0.1
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id, toolsListChanged=True) as stream:
        await stream.begun()
        await _fill(idle, claim)
        await stream.is_closed()


async def test_a_reader_that_is_slow_but_reads_is_not_cut_off(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    claim = await claimed(idle, "gated")
    async with listening(idle.client, task_id) as stream:
        await stream.begun()
        for count in range(20):  # more than fits between it and us, so that states wait here
            await idle.store.report(claim, f"{count} {LARGE}")
        await idle.client.cancel(task_id)
        await idle.store.release(claim)
        shown = await stream.ends()
    assert shown[-1]["status"] == "cancelled"
    assert len(shown) < 20


async def _fill(idle: Stage, claim: Claim) -> None:
    """Change the task until its listener is cut off."""

    async def is_cut_off() -> bool:
        await idle.store.report(claim, LARGE)
        return listeners(idle) == 0

    await eventually(is_cut_off, "it was not cut off")


# -- the server's end --------------------------------------------------------------------------------------------------


async def test_when_the_server_is_told_to_stop_each_stream_ends_with_its_result(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    async with listening(idle.client, task_id, id=1) as first, listening(idle.client, task_id, id=2) as second:
        for stream in (first, second):
            await stream.begun()
            await stream.snapshot()
        idle.tasks.assembly.stop_working()
        assert (await first.ends(), await second.ends()) == ([], [])
    reply = await refused(idle.client, listen_request([task_id]))
    assert (reply.code, reply.error["data"]["retryAfterMs"] > 0) == (-32000, True)
    assert (await idle.client.get(task_id)).result["status"] == "working"


# -- tokens ------------------------------------------------------------------------------------------------------------


class Verifier:
    """A token is who it belongs to, and how many seconds it is good for."""

    async def verify_token(self, token: str) -> AccessToken | None:
        subject, _, seconds = token.partition(" ")
        expires = None if not seconds else int(time.time()) + int(seconds)
        return AccessToken(
            token=token,
            client_id="app",
            scopes=[],
            subject=subject,
            claims={"iss": "https://id.example"},
            expires_at=expires,
        )


@asynccontextmanager
async def guarded(tmp_path: Path, tools: Tools, **options: Any) -> AsyncGenerator[Stage]:
    auth = AuthSettings(
        issuer_url=AnyHttpUrl("https://id.example"), resource_server_url=None, validate_token_resource=False
    )
    server = {"auth": auth, "token_verifier": Verifier()}
    async with stage(tmp_path, tools.declare, worker=False, server=server, **options) as up:
        yield up


async def test_a_foreign_task_is_left_out_as_an_unknown_one_is(tmp_path: Path, tools: Tools) -> None:
    async with guarded(tmp_path, tools) as up:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        hers, his = await ada.start("gated"), await bob.start("gated")
        async with listening(ada, his, hers) as stream:
            assert await stream.begun() == [hers]
            await stream.snapshot()
            session = await up.store.open_session(3_600_000, {})
            claims = await up.store.claim(session.id, [Demand("tools/call:gated", 2)], 2)
            held = {claim.task.id: claim for claim in claims}
            await up.store.report(held[his], "his")
            await up.store.report(held[hers], "hers")
            shown = await stream.snapshot()
        assert (shown["taskId"], shown["statusMessage"]) == (hers, "hers")
        async with listening(ada, his) as nothing, listening(ada, "tsk_" + "a" * 32) as unknown:
            assert await nothing.begun() == await unknown.begun() == []
            assert await nothing.ends() == await unknown.ends() == []
            assert nothing.frames == unknown.frames


async def test_a_stream_ends_no_later_than_its_token(tmp_path: Path, tools: Tools) -> None:
    async with guarded(tmp_path, tools) as up:
        task_id = await up.client.bearing("ada").start("gated")
        lasting, brief = up.client.bearing("ada 3600"), up.client.bearing("ada 2")
        async with listening(lasting, task_id) as stays, listening(brief, task_id) as ends:
            for stream in (stays, ends):
                await stream.begun()
                await stream.snapshot()
            assert await ends.ends() == []
            assert listeners(up) == 1
        assert (await lasting.get(task_id)).result["status"] == "working"


async def test_a_token_is_good_for_a_stream_in_its_last_second_too(tmp_path: Path, tools: Tools) -> None:
    async with guarded(tmp_path, tools) as up:
        task_id = await up.client.bearing("ada").start("gated")
        await eventually(lambda: time.time() % 1 < 0.5, "no second begins")
        async with listening(up.client.bearing("ada 0"), task_id) as stream:
            assert await stream.begun() == [task_id]


async def test_a_token_that_expires_before_there_is_a_stream_gets_none(
    tmp_path: Path, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guarded(tmp_path, tools) as up:
        ada = up.client.bearing("ada")
        task_id = await ada.start("gated")
        await eventually(lambda: time.time() % 1 < 0.5, "no second begins")
        store, expired = up.tasks.assembly.runtime.store, int(time.time()) + 2
        changed = store.changed

        async def late(*asked: Any) -> Any:
            await eventually(lambda: time.time() > expired, "time stands still")
            return await changed(*asked)

        monkeypatch.setattr(store, "changed", late)
        reply = await refused(up.client.bearing("ada 0"), listen_request([task_id]))
        assert reply.error == {"code": -32600, "message": "The access token has expired"}


async def test_an_owner_may_listen_so_many_times_and_others_do_not_feel_it(tmp_path: Path, tools: Tools) -> None:
    async with guarded(tmp_path, tools, owner_subscriptions=2) as up, AsyncExitStack() as open_streams:
        ada, bob = up.client.bearing("ada"), up.client.bearing("bob")
        hers, his = await ada.start("gated"), await bob.start("gated")
        for count in range(2):
            stream = await open_streams.enter_async_context(listening(ada, hers, id=count))
            await stream.begun()
        reply = await refused(ada, listen_request([hers]))
        assert (reply.code, reply.error["data"]["retryAfterMs"] > 0) == (-32000, True)
        async with listening(bob, his) as stream:
            assert await stream.begun() == [his]
        await open_streams.aclose()
        await eventually(lambda: listeners(up) == 0, "they are still open")
        async with listening(ada, hers) as stream:
            assert await stream.begun() == [hers]


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_a_server_has_so_many_streams_and_no_more(tmp_path: Path, tools: Tools) -> None:
    """Without authentication all clients are one owner, whose own bound would be one client's to use up."""
    async with stage(tmp_path, tools.declare, worker=False, subscriptions=3, owner_subscriptions=1) as up:
        task_id = await up.client.start("gated")
        async with AsyncExitStack() as open_streams:
            for count in range(3):
                stream = await open_streams.enter_async_context(listening(up.client, task_id, id=count))
                await stream.begun()
            reply = await refused(up.client, listen_request([task_id]))
            assert (reply.code, reply.error["data"]["retryAfterMs"] > 0) == (-32000, True)
        await eventually(lambda: listeners(up) == 0, "they are still open")
        async with listening(up.client, task_id) as stream:
            assert await stream.begun() == [task_id]


async def test_one_stream_has_so_many_tasks_and_no_more(tmp_path: Path, tools: Tools) -> None:
    limits = Limits(tasks_per_subscription=2)
    async with stage(tmp_path, tools.declare, worker=False, limits=limits) as up:
        tasks = [await up.client.start("gated") for _ in range(3)]
        reply = await refused(up.client, listen_request(tasks))
        assert (reply.status, reply.code) == (400, -32602)
        assert "2" in reply.error["message"]
        async with listening(up.client, *tasks[:2], tasks[0], "x") as stream:
            assert await stream.begun() == tasks[:2]


async def test_dozens_of_tasks_on_one_stream_are_all_followed(tmp_path: Path, tools: Tools) -> None:
    async with stage(tmp_path, tools.declare, worker=False, backlog=None) as up:
        tasks = [await up.client.start("gated") for _ in range(60)]
        async with listening(up.client, *tasks) as stream:
            assert await stream.begun() == tasks
            assert [(await stream.snapshot())["taskId"] for _ in tasks] == tasks
            for task_id in tasks:
                await up.client.cancel(task_id)
            assert {task["taskId"] for task in await stream.ends()} == set(tasks)


async def test_a_store_that_is_away_refuses_the_stream_before_it_begins(idle: Stage) -> None:
    task_id = await idle.client.start("gated")
    await idle.store.close()
    reply = await refused(idle.client, listen_request([task_id]))
    assert (reply.code, reply.error["data"]["retryAfterMs"] > 0) == (-32000, True)
    assert listeners(idle) == 0
    await idle.store.open()


# -- a bare socket -----------------------------------------------------------------------------------------------------


async def connected(client: Client) -> socket.socket:
    """A connection to the server whose receive buffer is small, and that nobody reads."""
    address = httpx2.URL(client.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        await asyncio.get_running_loop().sock_connect(sock, (address.host, address.port))
    return sock


async def ask(sock: socket.socket, client: Client, request: JSON) -> None:
    body = json.dumps(request).encode()
    fields = {"host": httpx2.URL(client.url).netloc.decode(), "content-length": f"{len(body)}", **headers(request)}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await asyncio.get_running_loop().sock_sendall(sock, f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
