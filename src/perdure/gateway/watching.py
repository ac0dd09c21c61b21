"""Notices by itself that a backend's lists have changed, so that the next client is not told what is over.

None of it is needed for a request to be right: a list that changed unnoticed is asked for anew when its ttl is over.
"""

from __future__ import annotations

import logging
from typing import Final

import anyio

from perdure.domain.model import JSONObject
from perdure.domain.routing import Route
from perdure.wire.identity import ANONYMOUS

from .backends import Asker, Backend
from .catalog import Catalog
from .feed import KINDS_OF, Feed
from .routing import Routing

__all__ = ["listenable", "watch"]

logger = logging.getLogger(__name__)

_AGAIN: Final = 60.0
_FLAGS: Final = {
    "toolsListChanged": "tools",
    "promptsListChanged": "prompts",
    "resourcesListChanged": "resources",
}


async def watch(backend: Backend, catalog: Catalog, routing: Routing) -> None:
    """Forget the backend's lists when it says that they have changed, for ever. It is asked without a client."""
    asker = Asker(ANONYMOUS)

    async def say(message: JSONObject, route: Route | None) -> None:
        pass

    def changed(method: str) -> None:
        catalog.forget(backend.name, KINDS_OF[method])

    while True:
        said = await catalog.discovered(backend.name, asker)
        core = listenable(said)
        if core:
            feed = Feed(backend, asker, backend.meta(), routing, {}, core, say, changed)
            feed.released.set()
            try:
                await feed.run()
            except Exception:  # the boundary to a peer: what it says here must not end what others are served by
                logger.exception("the lists of the backend %s could not be watched", backend.name)
        await anyio.sleep(_AGAIN)


def listenable(discovered: JSONObject | None) -> JSONObject:
    """The kinds of lists that a backend says it tells of when they change."""
    capabilities = (discovered or {}).get("capabilities")
    if not isinstance(capabilities, dict):
        return {}
    asked: JSONObject = {}
    for flag, name in _FLAGS.items():
        capability = capabilities.get(name)
        if isinstance(capability, dict) and capability.get("listChanged") is True:
            asked[flag] = True
    return asked
