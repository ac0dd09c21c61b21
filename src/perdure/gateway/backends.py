"""One backend as the rest of the gateway sees it: where it is, how it is told who asks, and how its names are exposed.

Names go through either a prefix or a map, per kind. Addresses of resources are never changed: results of tools hold
them too, and results pass unchanged. So which backend has a resource is a matter of what it lists, or of `addresses`,
how the addresses of its resources begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar, cast

import anyio
from mcp.server.auth.provider import AccessToken

from perdure.domain.model import JSONObject, Owner

from . import own
from .health import Health
from .identity import Passing
from .retrying import Safe
from .upstream import Reply, Upstream, Who

__all__ = ["Asker", "Backend", "Naming", "of_each"]

T = TypeVar("T")

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


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend.

    `addresses`: how those of its resources begin; none: that is told by its lists. `timeout`: seconds that a request
    may take. `client_info`: who the gateway's own requests come from, as the protocol has it.
    """

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
        message, headers = own.request(method, {"_meta": self.meta(), **params}, name)
        reply = await self.request(message, headers, asker, retry=self.upstream.bounds.retry, within=within)
        return cast("JSONObject", reply.message)

    def meta(self) -> JSONObject:
        """The envelope of the gateway's own requests."""
        return own.meta(self.client_info)

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
        return await self.upstream.request(
            message, headers, self.who(asker), deadline=deadline, retry=retry, lane=asker.owner
        )

    def who(self, asker: Asker) -> Who:
        """How it is told who asks."""
        return partial(self.passing.headers, asker.owner, asker.token)


async def of_each(backends: Sequence[Backend], ask: Callable[[Backend], Awaitable[T]]) -> dict[str, T]:
    """What `ask` comes to for each of them, by its name, in their order; all are asked at once."""
    found: dict[str, T] = {}

    async def one(backend: Backend) -> None:
        found[backend.name] = await ask(backend)

    async with anyio.create_task_group() as group:
        for backend in backends:
            group.start_soon(one, backend)
    return {backend.name: found[backend.name] for backend in backends}
