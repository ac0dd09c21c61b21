"""A client that reads slowly has its response, however long that takes; only its backend's time is counted."""

import asyncio
import json
from typing import Any

import anyio

from perdure.gateway.config import GatewayConfig
from tests.gateway.raw_backend import Asked, event, liar, response, result, stream
from tests.gateway.support import Front, configured, fronting
from tests.wire.envelopes import envelope, headers

NOTE: Any = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "on it"}}
WITHIN = 1.0


def patient(url: str) -> GatewayConfig:
    return configured({"it": url}, at_the_end=f"timeouts = {{ request = {WITHIN} }}")


async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Two notes and the result, all at once, or of `slow` only the first note."""
    if asked.message["method"] == "server/discover":
        writer.write(response(result(asked, supportedVersions=["2026-07-28"], capabilities={"tools": {}})))
    elif asked.message["params"]["name"] == "slow":
        writer.write(stream(event(NOTE), end=False))
        await asyncio.Event().wait()
    else:
        writer.write(stream(event(NOTE), event(NOTE), event(result(asked, content=[]))))
    await writer.drain()


class Reader:
    """An ASGI client that takes `pause` seconds to read the first event."""

    def __init__(self, tool: str, pause: float) -> None:
        self.body = envelope("tools/call", {"name": f"it_{tool}", "arguments": {}})
        self.pause = pause
        self.said: list[Any] = []

    async def reads(self, front: Front) -> list[Any]:
        """What it was sent, message by message."""
        scope: Any = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.lower().encode(), str(value).encode()) for name, value in headers(self.body).items()],
            "query_string": b"",
        }
        parts = [{"type": "http.request", "body": json.dumps(self.body).encode()}]

        async def receive() -> Any:
            return parts.pop() if parts else await anyio.sleep_forever()

        await front.gateway(scope, receive, self._take)
        return self.said

    async def _take(self, message: Any) -> None:
        lines = message.get("body", b"").splitlines()
        self.said += [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]
        if len(self.said) == 1 and self.pause:
            pause, self.pause = self.pause, 0.0
            await anyio.sleep(pause)


async def test_the_time_that_a_client_takes_to_read_is_not_its_backends() -> None:
    async with liar(answer) as up, fronting({}, config=patient(up.url)) as front:
        *notes, last = await Reader("quick", WITHIN * 1.5).reads(front)
        assert notes == [NOTE, NOTE]
        assert last["result"]["content"] == []


async def test_a_backend_has_no_more_time_because_its_client_was_slow() -> None:
    async with liar(answer) as up, fronting({}, config=patient(up.url)) as front:
        note, last = await Reader("slow", WITHIN / 2).reads(front)
        assert note == NOTE
        assert last["error"]["data"]["backend"] == "it"
