"""The methods that name something: a tool, a prompt, a resource. Whose it is, and what it is called there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from perdure.domain.model import JSONObject

from .answers import invalid_params
from .backends import Asker, Backend
from .catalog import Catalog
from .envelope import Request
from .forwarding import Forwarded, Forwarding
from .inflight import Pending
from .relay import Outlet

__all__ = ["FORWARDED", "Finding"]

FORWARDED: Final = frozenset({"tools/call", "prompts/get", "resources/read", "completion/complete"})

Find = Callable[[Request, Asker], Awaitable[Forwarded]]


class Finding:
    """Finds the backend of such a request, and has it forwarded."""

    def __init__(self, catalog: Catalog, forwarding: Forwarding) -> None:
        self._catalog = catalog
        self._forwarding = forwarding
        self.handlers = {
            "tools/call": self._serving(self._tool),
            "prompts/get": self._serving(self._prompt),
            "resources/read": self._serving(self._resource),
            "completion/complete": self._serving(self._completion),
        }

    def _serving(self, find: Find) -> Callable[[Request, Asker, Outlet, Pending], Awaitable[None]]:
        async def serve(request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
            await self._forwarding.forward(await find(request, asker), asker, outlet, pending)

        return serve

    async def _tool(self, request: Request, asker: Asker) -> Forwarded:
        name = _text(request.params.get("name"))
        it = _named(request, await self._catalog.tool(name, asker), f"Unknown tool: {name}")
        return replace(
            it, honours_keys=partial(self._catalog.honours_keys, it.backend.name, cast("str", it.name), asker)
        )

    async def _prompt(self, request: Request, asker: Asker) -> Forwarded:
        name = _text(request.params.get("name"))
        return _named(request, await self._catalog.prompt(name, asker), f"Unknown prompt: {name}")

    async def _resource(self, request: Request, asker: Asker) -> Forwarded:
        uri = _text(request.params.get("uri"))
        backend = await self._catalog.resource(uri, asker)
        if backend is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
        return Forwarded(request, backend, request.params, uri)

    async def _completion(self, request: Request, asker: Asker) -> Forwarded:
        ref: Any = request.params.get("ref")
        if not isinstance(ref, dict):
            raise invalid_params()
        given = cast("JSONObject", ref)
        if given.get("type") == "ref/prompt":
            name = _text(given.get("name"))
            backend, theirs = _found(await self._catalog.prompt(name, asker), f"Unknown prompt: {name}")
            return Forwarded(request, backend, {**request.params, "ref": {**given, "name": theirs}})
        uri = _text(given.get("uri"))
        backend = await self._catalog.resource(uri, asker)
        if backend is None:
            raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
        return Forwarded(request, backend, request.params)


def _named(request: Request, found: tuple[Backend, str] | None, otherwise: str) -> Forwarded:
    backend, theirs = _found(found, otherwise)
    same = request.params.get("name") == theirs
    return Forwarded(request, backend, request.params if same else {**request.params, "name": theirs}, theirs)


def _found(found: tuple[Backend, str] | None, otherwise: str) -> tuple[Backend, str]:
    if found is None:
        raise MCPError(INVALID_PARAMS, otherwise)
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise invalid_params()
