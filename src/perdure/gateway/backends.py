"""One backend as the rest of the gateway sees it: where it is, how it is told who asks, and how its names are exposed.

Names go through either a prefix or a map, per kind. Addresses of resources are never changed: results of tools hold
them too, and results pass unchanged. So which backend has a resource is a matter of what it lists, or of `addresses`,
how the addresses of its resources begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from mcp.server.auth.provider import AccessToken
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.version import LATEST_MODERN_VERSION

from perdure.domain.model import JSONObject, Owner
from perdure.domain.names import EXTENSION

from .faults import BackendTimeout
from .health import Health
from .identity import Passing
from .retrying import Safe
from .upstream import Reply, Upstream

__all__ = ["Asker", "Backend", "Naming"]

_SOON: Final = 5.0
"""Seconds that a request of the gateway's own may take: somebody waits for it who asked several backends."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: whose tasks may be seen, and the token that says so, if there is one."""

    owner: Owner
    token: AccessToken | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Naming:
    """How the names of one kind are exposed. `mapped`: the exposed name to the backend's; None: by `prefix`."""

    prefix: str = ""
    mapped: Mapping[str, str] | None = None

    def exposed(self, theirs: str) -> str | None:
        """What clients call it; None: it is not exposed."""
        if self.mapped is None:
            return self.prefix + theirs
        return next((ours for ours, name in self.mapped.items() if name == theirs), None)

    def theirs(self, exposed: str) -> str | None:
        """What the backend calls it; None: this is no name of this backend's."""
        if self.mapped is not None:
            return self.mapped.get(exposed)
        return exposed.removeprefix(self.prefix) if exposed.startswith(self.prefix) else None

    @property
    def is_bare(self) -> bool:
        """Whether any name at all may be one."""
        return self.mapped is None and not self.prefix


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend. `timeout`: seconds that a request may take. `name_of_gateway`: as what it is asked."""

    name: str
    upstream: Upstream
    passing: Passing
    health: Health
    tools: Naming = field(default_factory=Naming)
    prompts: Naming = field(default_factory=Naming)
    addresses: tuple[str, ...] = ()
    timeout: float = 60.0
    client_info: Mapping[str, str] = field(default_factory=dict[str, str])

    async def ask(
        self,
        method: str,
        params: JSONObject,
        asker: Asker,
        *,
        name: str | None = None,
        within: float = _SOON,
    ) -> JSONObject:
        """The response to a request of the gateway's own, on behalf of `asker`: one that may be sent twice.

        Raises:
            Fault: there is none.
        """
        message: JSONObject = {
            "jsonrpc": "2.0",
            "id": f"gateway-{method}",
            "method": method,
            "params": {"_meta": self.meta(), **params},
        }
        headers = {"mcp-protocol-version": LATEST_MODERN_VERSION, "mcp-method": method}
        if name is not None:
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        reply = await self.request(message, headers, asker, retry=self.upstream.bounds.retry, within=within)
        return cast("JSONObject", reply.message)

    def meta(self) -> JSONObject:
        """The envelope of the gateway's own requests."""
        capabilities: JSONObject = {"extensions": {EXTENSION: {}}}
        return {
            PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
            CLIENT_CAPABILITIES_META_KEY: capabilities,
            CLIENT_INFO_META_KEY: dict(self.client_info),
        }

    async def request(
        self,
        message: JSONObject,
        headers: Mapping[str, str],
        asker: Asker,
        *,
        retry: Safe | None = None,
        within: float | None = None,
    ) -> Reply:
        """The whole response to a message.

        Raises:
            Fault: there is none.
        """
        deadline = asyncio.get_running_loop().time() + (self.timeout if within is None else within)
        bound = asyncio.timeout_at(deadline)
        try:
            async with bound:
                told = {**headers, **await self.passing.headers(asker.owner, asker.token)}
                return await self.upstream.request(message, told, deadline=deadline, retry=retry, lane=asker.owner)
        except TimeoutError:
            if bound.expired():
                raise BackendTimeout(self.name, begun=True, counts=False) from None
            raise
