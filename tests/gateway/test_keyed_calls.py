"""A call under an idempotency key is sent again only if its backend says so, of itself and of that very tool."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from perdure import Tasks
from perdure.domain.names import IDEMPOTENCY, IDEMPOTENCY_KEY
from tests.gateway.raw_backend import Asked, liar, response, result
from tests.gateway.support import Front, fronting
from tests.support import eventually
from tests.wire.envelopes import envelope, meta
from tests.wire.support import stage

MARK: Any = {IDEMPOTENCY: {}}
NOTHING: Any = {}


class Keyed:
    """A backend that hangs up at the first `fails` calls. `tools`: the `_meta` of each, by its name."""

    def __init__(self, *, offers: bool = True, fails: int = 1, **tools: Any) -> None:
        self.offers = offers
        self.fails = fails
        self.tools: dict[str, Any] = tools
        self.asked: list[str] = []

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        method = asked.message["method"]
        self.asked.append(method)
        if method == "server/discover":
            capabilities: Any = {"tools": {}, "extensions": MARK if self.offers else NOTHING}
            writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", capabilities=capabilities)))
        elif method == "tools/list":
            tools: Any = [
                {"name": name, "inputSchema": {"type": "object"}, "_meta": meta} for name, meta in self.tools.items()
            ]
            writer.write(response(result(asked, ttlMs=60_000, cacheScope="public", tools=tools)))
        elif self.asked.count(method) <= self.fails:
            self.failed()
            writer.close()
        else:
            writer.write(response(result(asked, content=[])))
        await writer.drain()

    def failed(self) -> None:
        """A call has failed just now."""

    @property
    def calls(self) -> int:
        return self.asked.count("tools/call")


async def call(front: Front, key: str | None = "k") -> Any:
    await eventually(lambda: front.gateway.backends["it"].upstream.discovered is not None, "nobody asked the backend")
    keyed: Any = NOTHING if key is None else {IDEMPOTENCY_KEY: key}
    params: Any = {"name": "it_run", "arguments": {}, "_meta": meta() | keyed}
    return await front.client.exchange(envelope("tools/call", params))


async def test_a_call_of_a_marked_tool_is_sent_again_under_its_key() -> None:
    backend = Keyed(run=MARK)
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        assert (await call(front)).result["content"] == []
    assert backend.calls == 2


async def test_without_a_fault_nothing_is_listed() -> None:
    backend = Keyed(run=MARK, fails=0)
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        assert (await call(front)).result["content"] == []
    assert "tools/list" not in backend.asked


@pytest.mark.parametrize(
    ("backend", "key"),
    [
        (Keyed(run={}), "k"),
        (Keyed(run={IDEMPOTENCY: True}), "k"),
        (Keyed(other=MARK), "k"),
        (Keyed(offers=False, run=MARK), "k"),
        (Keyed(run=MARK), None),
    ],
    ids=["an ordinary tool", "a mark that is none", "a tool that is not listed", "no extension", "no key"],
)
async def test_any_other_call_is_sent_once(backend: Keyed, key: str | None) -> None:
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        reply = await call(front, key)
        assert (reply.status, reply.error["data"]["backend"]) == (503, "it")
    assert backend.calls == 1


async def test_what_was_listed_before_the_call_failed_does_not_count() -> None:
    class Replaced(Keyed):
        def failed(self) -> None:
            self.tools = {"run": NOTHING}

    backend = Replaced(run=MARK)
    async with liar(backend.answer) as up, fronting({"it": up.url}) as front:
        listed = await front.client.request("tools/list")
        assert listed.result["tools"][0]["_meta"] == MARK
        assert (await call(front)).status == 503
    assert backend.calls == 1


async def test_the_mark_reaches_clients_only_if_its_backend_offers_keys() -> None:
    true, false = Keyed(run=MARK), Keyed(offers=False, run=MARK | {"own": 1})
    async with liar(true.answer) as one, liar(false.answer) as two, fronting({"one": one.url, "two": two.url}) as front:
        said = (await front.client.request("server/discover")).result
        assert said["capabilities"]["extensions"] == MARK
        first, second = (await front.client.request("tools/list")).result["tools"]
        assert (first["_meta"], second["_meta"]) == (MARK, {"own": 1})


class Deafening:
    """Stands before a real server, and loses the answer to the first call on its way back."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self.url = url
        self.http = http
        self.calls = 0

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        headers = {name: value for name, value in asked.headers.items() if name not in ("host", "content-length")}
        reply = await self.http.post(self.url, content=asked.body, headers=headers)
        self.calls += asked.message["method"] == "tools/call"
        if asked.message["method"] == "tools/call" and self.calls == 1:
            writer.close()
        else:
            writer.write(response(reply.content, f"{reply.status_code} ", reply.headers["content-type"]))
        await writer.drain()


async def test_a_call_whose_answer_was_lost_makes_one_task_at_a_server_of_ours(tmp_path: Path) -> None:
    async def run() -> str:
        return "done"

    def declare(tasks: Tasks) -> None:
        tasks.tool(meta=MARK)(run)

    async with stage(tmp_path, declare) as it:
        before = Deafening(it.client.url, it.http)
        async with liar(before.answer) as up, fronting({"it": up.url}) as front:
            first = (await call(front)).result["taskId"]
            assert before.calls == 2
            assert (await call(front)).result["taskId"] == first
            assert len(dict(it.dump())["task"]) == 1
            assert (await front.client.until(first))["result"]["content"][0]["text"] == "done"
