"""A client of all servers of the fleet, which remembers what it was told. Raw: it knows JSON-RPC and headers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from math import inf
from typing import Any, Final

import httpx2
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION

from .history import EXTERNAL, TENANT_HEADER, Exchange

__all__ = ["TIMEOUT", "Client", "Unanswered", "connected"]

JSON = Any

TIMEOUT: Final = 3.0
"""Seconds after which a client gives up, and does not know what became of its request."""
_META: Final[dict[str, JSON]] = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: {"name": "chaos", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_IDEMPOTENCY: Final = "dev.perdure/idempotencyKey"
_SHUTTING_DOWN: Final = 503
_LONGEST_SHOWN: Final = 500


class Unanswered(Exception):
    """There is no result. What became of the request, only the history may tell."""


class Client:
    """Every exchange is in `history`, but for requests that never left because nobody listened."""

    def __init__(self, http: httpx2.AsyncClient, now: Callable[[], float]) -> None:
        self._http = http
        self._now = now
        self._tenants: dict[str, str] = {}
        self.history: list[Exchange] = []

    async def call(
        self, server: str, port: int, tool: str, arguments: dict[str, JSON], *, tenant: str, key: str | None = None
    ) -> JSON:
        """Create a task: its handle. All else that is asked of it is asked as the same tenant."""
        params = {"name": tool, "arguments": arguments}
        handle = await self._ask(server, port, "tools/call", tool, params, tenant=tenant, key=key)
        self._tenants[handle["taskId"]] = tenant
        return handle

    async def get(self, server: str, port: int, task_id: str) -> JSON:
        return await self._ask(server, port, "tasks/get", task_id, {"taskId": task_id})

    async def update(self, server: str, port: int, task_id: str, texts: dict[str, str]) -> None:
        responses = {key: {"action": "accept", "content": {"text": text}} for key, text in texts.items()}
        await self._ask(server, port, "tasks/update", task_id, {"taskId": task_id, "inputResponses": responses})

    async def cancel(self, server: str, port: int, task_id: str) -> None:
        await self._ask(server, port, "tasks/cancel", task_id, {"taskId": task_id})

    async def settle(self, server: str, port: int, handle: str, name: str, word: dict[str, str], text: str) -> bool:
        """Say how external work ended, as another system. Whether it was news; if not, it had ended otherwise before.

        `text`: what the tool makes of `word`.

        Raises:
            Unanswered: nobody knows.
        """
        headers = {"authorization": f"Bearer {handle}"}
        exchange = self._word(server, handle, name, text)
        response = await self._post(exchange, f"http://127.0.0.1:{port}/perdure/external", word, headers)
        if response.status_code == HTTPStatus.NO_CONTENT:
            self.history.append(replace(exchange, received=self._now(), result={}))
            return True
        error = {"code": response.status_code, "message": response.text[:_LONGEST_SHOWN]}
        self.history.append(replace(exchange, received=self._now(), error=error))
        if response.status_code == HTTPStatus.CONFLICT:
            return False
        raise Unanswered(error)

    def leave(self, handle: str, name: str, text: str) -> None:
        """Another system has left word, and does not know who will find it."""
        self.history.append(self._word("outbox", handle, name, text))

    def _word(self, server: str, handle: str, name: str, text: str) -> Exchange:
        return Exchange(server, EXTERNAL, {"taskId": handle.partition("~")[0], "name": name, "text": text}, self._now())

    async def _ask(
        self,
        server: str,
        port: int,
        method: str,
        name: str,
        params: dict[str, JSON],
        *,
        tenant: str | None = None,
        key: str | None = None,
    ) -> JSON:
        """The result.

        Raises:
            Unanswered: there is none.
        """
        meta = _META if key is None else {**_META, _IDEMPOTENCY: key}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": LATEST_MODERN_VERSION,
            "mcp-method": method,
            "mcp-name": name,
            TENANT_HEADER: self._tenants[name] if tenant is None else tenant,
        }
        exchange = Exchange(server, method, params, self._now(), key=key)
        response = await self._post(exchange, f"http://127.0.0.1:{port}/mcp", body, headers)
        result, error = _read(response)
        received = inf if result is error is None else self._now()
        self.history.append(replace(exchange, received=received, result=result, error=error))
        if result is None:
            raise Unanswered(error)
        return result

    async def _post(self, exchange: Exchange, url: str, body: JSON, headers: dict[str, str]) -> httpx2.Response:
        try:
            return await self._http.post(url, json=body, headers=headers)
        except httpx2.ConnectError as error:  # nobody listens: nothing was sent
            raise Unanswered from error
        except httpx2.TransportError as error:
            self.history.append(exchange)
            raise Unanswered from error


def _read(response: httpx2.Response) -> tuple[JSON, JSON]:
    """Result and error."""
    try:
        body = response.json()
        return body.get("result"), body.get("error")
    except ValueError:
        if response.status_code == _SHUTTING_DOWN:
            return None, None
        text = response.text[:_LONGEST_SHOWN]
        return None, {"code": None, "message": f"HTTP {response.status_code}, and no JSON: {text}"}


@asynccontextmanager
async def connected(started: float) -> AsyncGenerator[Client]:
    """A client whose clock counts the seconds since `started`, a reading of the monotonic one."""
    # Without TLS, which nobody speaks here and whose certificates take long to load.
    async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=False) as http:
        yield Client(http, lambda: time.monotonic() - started)
