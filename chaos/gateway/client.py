"""A client of both gateways, as several owners, which remembers what it was told. It knows JSON-RPC and headers."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from math import inf
from typing import Any, Final

import httpx2
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION

from chaos.processes import Seat

from .told import Asked, Frame, Why

__all__ = ["Client", "connected"]

JSON = Any

_TIMEOUT: Final = 8.0
"""Seconds after which a client gives up."""
_BACK_WITHIN: Final = 0.4
"""Seconds in which a request is taken back that is to be: most of them before it can have been answered."""
_META: Final[dict[str, JSON]] = {
    PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
    CLIENT_INFO_META_KEY: {"name": "chaos", "version": "1"},
    CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}
_IDEMPOTENCY: Final = "dev.perdure/idempotencyKey"


class Client:
    """`asked` and `frames` are all that it was told."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._ids = itertools.count(1)
        self.asked: list[Asked] = []
        self.frames: list[Frame] = []

    async def call(self, owner: str, gateway: Seat, tool: str, arguments: JSON, why: Why, key: str | None) -> Asked:
        """A call of a tool, which may be taken back."""
        label = arguments["label"]
        asked = Asked(owner, gateway.name, "tools/call", label, why, time.monotonic(), tool=tool, key=key is not None)
        params = {"name": tool, "arguments": arguments}
        return await self._ask(asked, gateway, params, tool, {} if key is None else {_IDEMPOTENCY: key})

    async def ask(self, owner: str, gateway: Seat, method: str, task_id: str, why: Why, **more: JSON) -> Asked:
        """One of `tasks/*`."""
        asked = Asked(owner, gateway.name, method, task_id, why, time.monotonic())
        return await self._ask(asked, gateway, {"taskId": task_id, **more}, task_id, {})

    async def listen(self, owner: str, gateway: Seat, task_ids: Sequence[str], seconds: float) -> None:
        """Listen to tasks for a while, and hang up."""
        body = self._body("subscriptions/listen", {"notifications": {"taskIds": [*task_ids]}}, {})
        headers = self._headers(owner, "subscriptions/listen", None)
        wanted = frozenset(task_ids)
        with suppress(httpx2.TransportError, TimeoutError):
            async with (
                asyncio.timeout(seconds),
                self._http.stream("POST", _url(gateway), json=body, headers=headers) as response,
            ):
                async for line in response.aiter_lines():
                    if line.startswith("data:"):
                        self._heard(owner, wanted, json.loads(line[5:]))

    def _heard(self, owner: str, wanted: frozenset[str], message: JSON) -> None:
        params = message.get("params", {})
        for task_id in params.get("notifications", {}).get("taskIds", ()):
            self.frames.append(Frame(owner, wanted, task_id, "acknowledged"))
        if message.get("method") == "notifications/tasks":
            self.frames.append(Frame(owner, wanted, params["taskId"], params["status"]))

    async def _ask(self, asked: Asked, gateway: Seat, params: JSON, name: str, meta: dict[str, JSON]) -> Asked:
        body = self._body(asked.method, params, meta)
        headers = self._headers(asked.owner, asked.method, name)
        post = asyncio.ensure_future(self._http.post(_url(gateway), json=body, headers=headers))
        try:
            if asked.took_back:
                await self._take_back(asked, gateway, body["id"], post)
            response = await post
        except (httpx2.TransportError, asyncio.CancelledError):
            if not post.cancelled() and not post.done():
                post.cancel()
                raise
            told = asked
        else:
            told = _told(asked, response)
        self.asked.append(told)
        return told

    async def _take_back(self, asked: Asked, gateway: Seat, id_: str, post: asyncio.Future[httpx2.Response]) -> None:
        """Some time after it went out, which is before or after it has become a task."""
        await asyncio.wait(
            [post], timeout=_BACK_WITHIN * random.Random(f"{asked.about} {len(self.asked)}").random() ** 6
        )
        if asked.why is Why.HUNG_UP:
            post.cancel()
            return
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_}}
        with suppress(httpx2.TransportError):
            headers = self._headers(asked.owner, "notifications/cancelled", None)
            await self._http.post(_url(gateway), json=note, headers=headers)

    def _body(self, method: str, params: JSON, meta: dict[str, JSON]) -> JSON:
        params = {**params, "_meta": {**_META, **meta}}
        return {"jsonrpc": "2.0", "id": f"r{next(self._ids)}", "method": method, "params": params}

    def _headers(self, owner: str, method: str, name: str | None) -> dict[str, str]:
        headers = {
            "accept": "application/json, text/event-stream",
            "authorization": f"Bearer {owner}",
            "mcp-protocol-version": LATEST_MODERN_VERSION,
            "mcp-method": method,
        }
        return headers if name is None else {**headers, "mcp-name": name}


def _url(gateway: Seat) -> str:
    return f"http://127.0.0.1:{gateway.port}/mcp"


def _told(asked: Asked, response: httpx2.Response) -> Asked:
    message = _message(response)
    result, error = message.get("result"), message.get("error")
    received = inf if result is error is None else time.monotonic()
    return replace(asked, received=received, result=result, error=error)


def _message(response: httpx2.Response) -> JSON:
    """The response, be it a body or the last event of a stream; nothing, if it broke off."""
    try:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line[5:] for line in response.text.splitlines() if line.startswith("data:")]
            return json.loads(lines[-1]) if lines else {}
        return response.json() if response.content else {}
    except ValueError:
        return {}


@asynccontextmanager
async def connected() -> AsyncGenerator[Client]:
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=2.0)
    # Without TLS, which nobody speaks here and whose certificates take long to load.
    async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False, verify=False, limits=limits) as http:
        yield Client(http)
