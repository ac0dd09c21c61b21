"""Whatever a backend answers: never an error inside the gateway, and never less of the other backend.

Good answers, each with a few of its values replaced by others, left out or added, by a fixed chance.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import anyio
import pytest

from tests.gateway.odd import HANDLE, beside
from tests.gateway.raw_backend import Asked, event, response, result, stream
from tests.gateway.support import Front
from tests.support import PATIENCE
from tests.wire.envelopes import envelope, headers
from tests.wire.listening import ACKNOWLEDGED, SNAPSHOT
from tests.wire.support import stage
from tests.wire.tools import Tools

VALUES: Final[list[Any]] = [None, True, 0, -1, 1.5, 10**19, 10**400, "", "x", "\ud800", "a\r\nb", [], [1], {}, {"a": 1}]
NAMES: Final = ["_meta", "taskId", "status", "error", "result", "id", "method", "params", "nextCursor", "ttlMs"]
CAPABILITIES: Final[Any] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "extensions": {"io.modelcontextprotocol/tasks": {}, "com.example/maps": {}},
}
UNSPARED: Final = """\
[backends.odd.breaker]
failures = 1_000_000
[backends.odd.health]
failures = 1_000_000
[backends.odd.retry]
tries = 1
"""
"""For a backend that is asked on, however it fails."""
SHOWN: Final[Any] = {**HANDLE, "resultType": "complete"}
ASKED: Final[list[tuple[str, Any]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("resources/list", {}),
    ("tools/call", {"name": "odd_thing", "arguments": {}}),
    ("maps/draw", {}),
    ("tasks/get", {}),
    ("tasks/cancel", {}),
    ("subscriptions/listen", {}),
]


class Chancy:
    """A backend, as `Odd` in what tests need of it. `chance` decides what it says."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        message = asked.message
        if message["method"] == "subscriptions/listen":
            honored = {"notifications": message["params"]["notifications"]}
            frames = [said(ACKNOWLEDGED, honored), said(SNAPSHOT, SHOWN), said("notifications/tools/list_changed", {})]
            writer.write(stream(*(event(self._changed(each)) for each in frames)))
        else:
            good = result(asked, **{"ttlMs": 0, "cacheScope": "public", **self._good(message)})
            body = self._changed(good)
            writer.write(response(body) if self._chance.random() < 0.7 else stream(event(body)))
        await writer.drain()

    def _good(self, message: Any) -> Any:
        match message["method"]:
            case "server/discover":
                return {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES}
            case "tools/list":
                return {"tools": [{"name": "thing", "inputSchema": {"type": "object"}}]}
            case "resources/list":
                return {"resources": [{"uri": "x://a", "name": "a"}]}
            case "tools/call":
                return HANDLE | {"taskId": f"theirs-{self._chance.randrange(10**6)}"}
            case "tasks/get":
                return SHOWN | {"taskId": message["params"]["taskId"]}
            case _:
                return {}

    def _changed(self, good: Any) -> Any:
        value = copy.deepcopy(good)
        for _ in range(self._chance.randrange(4)):
            holder, name = self._chance.choice([*places(value)])
            match self._chance.randrange(4):
                case 0 if isinstance(holder, dict):
                    del holder[name]
                case 1 if isinstance(holder, dict):
                    holder[self._chance.choice(NAMES)] = copy.deepcopy(self._chance.choice(VALUES))
                case _:
                    holder[name] = copy.deepcopy(self._chance.choice(VALUES))
            if not value:
                return good
        return value


def said(method: str, params: Any) -> Any:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place within a value, as what holds it and its name there."""
    names: list[Any] = []
    if isinstance(value, dict | list):
        several = cast("Any", value)
        names = [*several] if isinstance(value, dict) else [*range(len(several))]
    for name in names:
        yield value, name
        yield from places(value[name])


async def told(front: Front, method: str, params: Any) -> str:
    """All that comes; of what is listened to, what comes within a moment: that it never ends is no matter here."""
    message, text = envelope(method, params), ""
    with anyio.move_on_after(0.3 if method == "subscriptions/listen" else PATIENCE):
        async with front.http.stream("POST", front.url, json=message, headers=headers(message)) as reply:
            async for part in reply.aiter_text():
                text += part
    return text


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_a_backend_answers_is_an_answer_and_nobody_elses_matter(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    backend: Any = Chancy(chance)
    async with stage(tmp_path, Tools().declare) as good, beside(good, backend, UNSPARED) as front:
        mine = await front.client.start("good_hello", {"name": "Ada"})
        tasks = [mine]
        for _ in range(150):
            method, params = chance.choice(ASKED)
            if method.startswith("tasks/"):
                params = {"taskId": chance.choice(tasks)}
            elif method == "subscriptions/listen":
                params = {"notifications": {"taskIds": [chance.choice(tasks), mine], "toolsListChanged": True}}
            text = await told(front, method, params)
            assert "Internal error" not in text
            if method == "tools/list":
                assert "good_hello" in text
            if method == "tools/call" and '"taskId":"tsk_' in text:
                tasks.append(text.partition('"taskId":"')[2][:36])
        await front.client.until(mine, "completed")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR and record.exc_info]
