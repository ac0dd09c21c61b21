"""A raw client of the handshake era over HTTP, as `support` has one of the era after it."""

import asyncio
import json
from collections.abc import Mapping

from tests.support import PATIENCE
from tests.wire.envelopes import JSON
from tests.wire.support import Reply, Stage


class Old:
    """It shakes hands, gets a session, and reads events. `token` goes along as a bearer, `query` in the URL."""

    def __init__(
        self, scene: Stage, era: str, capabilities: JSON, token: str | None = None, *, query: str = ""
    ) -> None:
        self._scene = scene
        self._url = scene.client.url + query
        self._era = era
        self._capabilities = capabilities
        self._last_id = 0
        self._fields = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if token is not None:
            self._fields["authorization"] = f"Bearer {token}"

    async def shake_hands(self) -> JSON:
        params: JSON = {"protocolVersion": self._era, "capabilities": self._capabilities}
        params["clientInfo"] = {"name": "old", "version": "0"}
        body: JSON = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self._scene.http.post(self._url, json=body, headers=self._fields)
        self._fields |= {"mcp-session-id": response.headers["mcp-session-id"], "mcp-protocol-version": self._era}
        note: JSON = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self._scene.http.post(self._url, json=note, headers=self._fields)).status_code == 202
        return event(response.text)["result"]

    async def request(self, method: str, params: Mapping[str, JSON]) -> Reply:
        self._last_id += 1
        body: JSON = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        async with asyncio.timeout(PATIENCE):
            response = await self._scene.http.post(self._url, json=body, headers=self._fields)
        return Reply(response.status_code, response.content, event(response.text))


def event(text: str) -> JSON:
    """The response, with which a stream ends. Nothing comes before it but what a client that waits is told of tasks."""
    *told, answer = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert all(each["method"] == "notifications/tasks/status" for each in told), told
    return answer
