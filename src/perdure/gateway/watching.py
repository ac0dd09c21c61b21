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
from .changes import FLAGS, Change
from .feed import Feed
from .routing import Routing

__all__ = ["listenable", "watch"]

logger = logging.getLogger(__name__)

_AGAIN: Final = 60.0
"""Seconds after which a backend that says nothing of changes is asked once more whether it does."""


async def watch(backend: Backend, catalog: Catalog, routing: Routing) -> None:
    """Forget the backend's lists when it says that they have changed, for ever. It is asked without a client."""
    asker = Asker(ANONYMOUS)

    async def say(message: JSONObject, route: Route | None) -> None:
        pass

    def changed(change: Change) -> None:
        catalog.forget(backend.name, change.lists)

    while True:
        said = await catalog.discovery.of(backend.name, asker)
        core = listenable(said)
        if core:
            feed = Feed(backend, asker, backend.meta(), routing, {}, core, say, changed, gap=True)
            feed.released.set()
            try:
                async with anyio.create_task_group() as beside:
                    await feed.run(beside)
            except Exception:  # the boundary to a peer: what it says here must not end what others are served by
                logger.exception("the lists of the backend %s could not be watched", backend.name)
        await anyio.sleep(_AGAIN)


def listenable(discovered: JSONObject | None) -> JSONObject:
    """The kinds of lists that a backend says it tells of when they change."""
    capabilities = (discovered or {}).get("capabilities")
    if not isinstance(capabilities, dict):
        return {}
    asked: JSONObject = {}
    for flag, change in FLAGS.items():
        capability = capabilities.get(change.capability)
        if isinstance(capability, dict) and capability.get("listChanged") is True:
            asked[flag] = True
    return asked
