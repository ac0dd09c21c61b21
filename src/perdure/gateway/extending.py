"""Methods of extensions that the gateway knows nothing of: whose they are, and passed on as they are.

Nothing in such a request says which extension it is of. By custom the methods of one begin with its name (those of
`io.modelcontextprotocol/tasks` with `tasks/`), so that is looked at first. Else it is one that the request itself
declares. In both cases there has to be just one backend that offers it: a guess would ask somebody for what another
one was meant to do. A method of the core's, in whatever version of it, is nobody's if the gateway does not serve it.

What such methods say of tasks is not translated, but a task that comes of one is like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

from mcp.shared.inbound import MCP_NAME_HEADER
from mcp_types import CLIENT_CAPABILITIES_META_KEY
from mcp_types.methods import SPEC_CLIENT_METHODS

from perdure.domain.model import JSONObject
from perdure.domain.names import EXTENSION, IDEMPOTENCY

from .answers import method_not_found
from .backends import Asker, Backend
from .catalog import Catalog
from .envelope import Request
from .forwarding import Forwarded, Forwarding
from .inflight import Pending
from .relay import Outlet

__all__ = ["Extending", "owner_of"]

_OURS: Final = frozenset({EXTENSION, IDEMPOTENCY})
"""What the gateway has a part in itself."""


class Extending:
    """Finds the backend of such a request, and has it forwarded."""

    def __init__(self, backends: Mapping[str, Backend], catalog: Catalog, forwarding: Forwarding) -> None:
        self._backends = backends
        self._catalog = catalog
        self._forwarding = forwarding

    async def serve(self, request: Request, asker: Asker, outlet: Outlet, pending: Pending) -> None:
        """Serve one.

        Raises:
            MCPError: -32601, it is nobody's.
            Fault: the backend does not answer.
        """
        if request.method in SPEC_CLIENT_METHODS:
            raise method_not_found(request.method)
        offers = {name: extensions_of(said) for name, said in (await self._catalog.discovery.of_each(asker)).items()}
        name = owner_of(request.method, _extensions(request.meta.get(CLIENT_CAPABILITIES_META_KEY)), offers)
        if name is None:
            raise method_not_found(request.method)
        it = Forwarded(_with_name(request), self._backends[name], request.params)
        await self._forwarding.forward(it, asker, outlet, pending)


def owner_of(method: str, declared: frozenset[str], offers: Mapping[str, frozenset[str]]) -> str | None:
    """The one backend that a method may be of; None: there is none, or it can't be told.

    `declared`: the extensions that the request declares; `offers`: those that each backend offers.
    """
    every = {extension for each in offers.values() for extension in each}
    named = {extension for extension in every | _OURS if _begins_like(extension, method)}
    if named & _OURS:
        return None
    every -= _OURS
    wanted = named or (every & declared)
    having = [name for name, offered in offers.items() if offered & wanted]
    return having[0] if len(having) == 1 else None


def extensions_of(discovered: JSONObject | None) -> frozenset[str]:
    """The extensions that a backend offers."""
    return _extensions((discovered or {}).get("capabilities"))


def _extensions(capabilities: object) -> frozenset[str]:
    given: Any = cast("dict[str, Any]", capabilities).get("extensions") if isinstance(capabilities, dict) else None
    return frozenset(cast("dict[str, Any]", given)) if isinstance(given, dict) else frozenset()


def _begins_like(extension: str, method: str) -> bool:
    return method.startswith((f"{extension}/", f"{extension.rpartition('/')[2]}/"))


def _with_name(request: Request) -> Request:
    """`Mcp-Name` goes on as it came: what it repeats is not known here, and not changed."""
    if request.name is None:
        return request
    return replace(request, headers={**request.headers, MCP_NAME_HEADER: request.name})
