"""What the backends say of themselves in `server/discover`, each by itself and all of them as one server.

How words are merged is `merging`'s, and for how long one is good its `shelf`'s; here is whose words are asked for, and
what stands in for those that do not come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mcp_types import SERVER_INFO_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.domain.model import JSONObject
from perdure.domain.names import DISCOVER

from . import merging
from .backends import Asker, Backend, of_each
from .faults import Fault
from .shelf import Listed, Shelf

__all__ = ["Discovery"]

_LONGEST: Final = 3_600_000
"""Milliseconds that the result for clients is fresh for at most."""


class Discovery:
    """Of all backends. `instructions`: what clients are told of how to use it all; None: what the backends say."""

    def __init__(
        self,
        backends: Sequence[Backend],
        shelves: Mapping[str, Shelf],
        server_info: JSONObject,
        instructions: str | None,
    ) -> None:
        self._backends = backends
        self._shelves = shelves
        self._server_info = server_info
        self._instructions = instructions

    async def result(self, asker: Asker) -> JSONObject:
        """What clients get: what all of them together can do.

        There is one whatever becomes of the backends. Clients take an error for that of a server of the handshake era,
        and begin anew with a method that there is not; so why nothing can be done has to be said of what they ask next.
        """

        async def look(backend: Backend) -> tuple[Listed | None, bool]:
            shelf = self._shelves[backend.name]
            try:
                return await shelf.discovered(asker), True
            except Fault:
                return shelf.last(DISCOVER, asker), False

        looked = await of_each(self._backends, look)
        listed = [each for each, _ in looked.values() if each is not None]
        said = [
            (backend, each.entries[0]) for backend in self._backends if (each := looked[backend.name][0]) is not None
        ]
        unheard = [merging.UNHEARD] * (len(looked) - len(listed))
        now = all(fresh for _, fresh in looked.values())
        instructions = merging.instructions(said) if self._instructions is None else self._instructions
        result: JSONObject = {
            "supportedVersions": [*MODERN_PROTOCOL_VERSIONS],
            "capabilities": merging.capabilities([*(each for _, each in said), *unheard]),
            "resultType": "complete",
            "ttlMs": min(_LONGEST, *(each.left_ms for each in listed)) if now else 0,
            "cacheScope": "private" if unheard or any(each.private for each in listed) else "public",
            "_meta": {SERVER_INFO_META_KEY: self._server_info},
        }
        return {**result, "instructions": instructions} if instructions else result

    async def of(self, backend: str, asker: Asker) -> JSONObject | None:
        """What one of them said of itself; None: it can't be asked."""
        try:
            return (await self._shelves[backend].discovered(asker)).entries[0]
        except Fault:
            return None

    async def of_each(self, asker: Asker) -> dict[str, JSONObject | None]:
        """What each of them said of itself, by its name: the last time, if it can't be asked now; None: never."""

        async def look(backend: Backend) -> JSONObject | None:
            return await self.of(backend.name, asker) or backend.upstream.discovered

        return await of_each(self._backends, look)
