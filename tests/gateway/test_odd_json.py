"""Whatever JSON backends answer with, where it is and what it is in place of: no request fails inside the gateway.

Two backends whose every answer is a good one in which members were replaced, left out and added at random, by a seed.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from typing import Any, Final, cast

import pytest

from tests.gateway.raw_backend import Asked, event, liar, response, stream
from tests.gateway.support import Front, fronting
from tests.gateway.test_lies import CAPABILITIES, HANDLE
from tests.wire.envelopes import envelope

ODD: Final[list[Any]] = [None, True, 0, -1, 1.5, 10**400, "", "x", "\ud800", [], {}, [[]], [1], {"a": []}, {"": None}]
CHANGES: Final[Any] = {"listChanged": True}
FRESH: Final[Any] = {"ttlMs": 5, "cacheScope": "public"}
GOOD: Final[dict[str, Any]] = {
    "server/discover": {
        "capabilities": {
            **CAPABILITIES,
            "tools": CHANGES,
            "prompts": CHANGES,
            "resources": {**CHANGES, "subscribe": 1},
        },
        "instructions": "Read first.",
    },
    "tools/list": {"tools": [{"name": "t", "inputSchema": {}, "_meta": {"dev.perdure/idempotency": {}}}]},
    "prompts/list": {"prompts": [{"name": "p"}]},
    "resources/list": {"resources": [{"uri": "a:b", "name": "r"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "a:{x}", "name": "r"}]},
    "tools/call": {**HANDLE, "_meta": {"io.modelcontextprotocol/related-task": {"taskId": "theirs-0001"}}},
    "tasks/get": {**HANDLE, "resultType": "complete", "pollIntervalMs": 10},
}
REQUESTS: Final[list[tuple[str, Any]]] = [
    *((method, {}) for method in GOOD if method not in ("tools/call", "tasks/get")),
    ("resources/read", {"uri": "a:b"}),
    ("prompts/get", {"name": "one_p"}),
    ("completion/complete", {"ref": {"type": "ref/resource", "uri": "a:{x}"}, "argument": {"name": "x", "value": ""}}),
    ("x/y", {}),
]
LISTENED: Final[Any] = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
ROUNDS: Final = 12


class Odd:
    """A backend, and how odd it is just now: the share of values that are others."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        message, share = asked.message, self.rng.choice([0, 0.05, 0.15, 0.3])
        if message["method"] == "subscriptions/listen":
            frames = [self.other(each, share) for each in self.frames(message)]
            writer.write(stream(*map(event, frames), end=self.rng.random() < 0.5))
        else:
            said = self.other({"resultType": "complete", **FRESH, **GOOD.get(message["method"], {})}, share)
            answered: Any = {"jsonrpc": "2.0", "id": message["id"], "result": said}
            writer.write(response(answered) if self.rng.random() < 0.7 else stream(event(answered)))
        await writer.drain()

    def frames(self, request: Any) -> Iterator[Any]:
        wanted = {"notifications": request["params"]["notifications"]}
        yield {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": wanted}
        kinds: dict[str, Any] = {"tasks": HANDLE, "resources/updated": {"uri": "a:b"}, "tools/list_changed": {}}
        for kind in self.rng.choices([*kinds], k=3):
            yield {"jsonrpc": "2.0", "method": f"notifications/{kind}", "params": kinds[kind]}

    def other(self, value: Any, share: float) -> Any:
        if self.rng.random() < share:
            return self.rng.choice(ODD)
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value).items()
            return {name: self.other(each, share) for name, each in members if self.rng.random() > share / 2}
        return [self.other(each, share) for each in cast("list[Any]", value)] if isinstance(value, list) else value


async def tried(front: Front) -> None:
    """Everything that a client may ask, once."""
    for backend in front.gateway.backends.values():
        backend.upstream.breaker.close()
    for method, params in REQUESTS:
        name = params.get("uri") or params.get("name")
        await front.client.exchange(envelope(method, params), None if name is None else {"mcp-name": name})
    handle: Any = (await front.client.exchange(envelope("tools/call", {"name": "one_t", "arguments": {}}))).body
    task_id = handle.get("result", {}).get("taskId")
    if not isinstance(task_id, str):
        return
    for method in ("tasks/get", "tasks/cancel"):
        await front.client.exchange(envelope(method, {"taskId": task_id}))
    request = envelope("subscriptions/listen", {"notifications": {"taskIds": [task_id], **LISTENED}})
    try:
        async with asyncio.timeout(0.15), front.client.streaming(request) as frames:
            async for line in frames.aiter_lines():
                assert "Internal error" not in line
    except TimeoutError:
        pass


@pytest.mark.parametrize("seed", range(3))
async def test_no_request_fails_inside_the_gateway(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    one, two = Odd(seed), Odd(seed + 100)
    async with (
        liar(one.answer) as first,
        liar(two.answer) as second,
        fronting({"one": first.url, "two": second.url}) as front,
    ):
        for _ in range(ROUNDS):
            await tried(front)
    said = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in said if record.exc_info is not None] == []
