"""Work that nobody can do: ready runs whose handler no live worker has.

A deploy that is halfway through, a rollback, a worker that was told to serve other queues: such tasks stay queued, and
come to nothing wrong. But they may stay so for ever, and the clients see nothing but `working`; so it has to be said
where operators look.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from time import monotonic

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import Session
from perdure.domain.timeline import Load
from perdure.store.base import Store

from . import lease

__all__ = ["Watch", "handlers_of", "unclaimable"]

logger = logging.getLogger(__name__)

_LOOK_EVERY = 5.0
"""Seconds between looks, give or take a fifth."""
_AT_MOST = 0.005
"""The share of the time that goes into looking; a store so full that a look takes long is looked at less often."""
_PATIENCE = 10.0
"""Seconds that nobody may have a handler before it is said. A worker that is restarted comes back sooner."""
_SILENCE = 60.0
"""Seconds before it is said again."""


def handlers_of(session: Session) -> frozenset[str]:
    """What the worker of a session can run, as it said itself."""
    handlers = session.info.get("handlers")
    return frozenset(name for name in handlers if isinstance(name, str)) if isinstance(handlers, list) else frozenset()


def unclaimable(loads: Iterable[Load], sessions: Iterable[tuple[Session, bool]]) -> tuple[Load, ...]:
    """Those of `loads` that have ready runs and no worker that lives, as far as anybody can tell.

    `sessions`: as `Store.sessions` gives them.
    """
    live = [handlers_of(session) for session, lapsed in sessions if not lapsed and not lease.gone(session.info)]
    return tuple(load for load in loads if load.ready and load.handler not in frozenset[str]().union(*live))


class Watch:
    """Says in the log, once a minute at most for each handler, what waits for a worker that there is not."""

    def __init__(self, store: Store, clock: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._since: dict[str, float] = {}
        """Since when a handler is known to be missing."""
        self._said: dict[str, float] = {}

    async def look(self) -> None:
        """One look.

        Raises:
            StoreUnavailable: nobody can tell.
        """
        # Counting all loads reads every run that there is, sleeping ones too; whether any is ready is one look-up.
        ready = await self._store.backlog(1)
        missing = unclaimable(await self._store.loads(), await self._store.sessions()) if ready else ()
        now = self._clock()
        self._since = {load.handler: self._since.get(load.handler, now) for load in missing}
        for load in missing:
            said = self._said.get(load.handler, float("-inf"))
            if now - self._since[load.handler] >= _PATIENCE and now - said >= _SILENCE:
                self._said[load.handler] = now
                wait = "task waits" if load.ready == 1 else "tasks wait"
                logger.warning("no worker has %s, and %d %s for one", load.handler, load.ready, wait)

    async def keep_watch(self) -> None:
        """Look again and again, until cancelled. Jittered, so that many replicas don't all look at once."""
        while True:
            began = self._clock()
            try:
                await self.look()
            except StoreUnavailable:
                logger.debug("could not look for tasks without a worker: the store is unavailable")
            pause = max(_LOOK_EVERY, (self._clock() - began) / _AT_MOST)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, no secret
