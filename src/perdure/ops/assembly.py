"""What is behind a `Tasks`: the store that its URL names, the engine on top, the tools, the server that they belong to.

Users see `Tasks`. This is what the command line, the server's start and the harness work with: they configure it, look
whether it can be used, and run it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from weakref import WeakSet

import anyio
from mcp.server.mcpserver import MCPServer

from perdure.domain.errors import ConfigurationError, StoreUnusable
from perdure.engine.runtime import Options, Runtime
from perdure.engine.sealers import Sealing
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from perdure.tools.catalog import Catalog
from perdure.wire.attachment import NO_LIFESPAN, Attachment
from perdure.wire.identity import Identify

from . import checks, stores
from . import keys as environment

__all__ = ["Assembly", "assembly_of"]

logger = logging.getLogger(__name__)

_PARTING: Final = 1.5
"""Seconds for the clients of a server over pipes to read that their streams are over."""


_UNSEALED: Final = "keys are for a store that is named by a URL: one of your own has to seal its values by itself"


class Assembly:
    """The parts of one `Tasks`, put together.

    `named`: the store as it was given, the URL or the object. `keys`: what its values are sealed under.
    `identified`: `identify` is the program's own, and need not go by access tokens.
    `allow_anonymous`: the server may listen beyond this machine though it has no authentication.
    """

    def __init__(
        self,
        store: str | Store,
        options: Options,
        *,
        identify: Identify,
        identified: bool,
        allow_anonymous: bool,
        keys: KeyRing | None = None,
    ) -> None:
        self.named = store
        self.keys = keys
        if keys is not None and not isinstance(store, str):
            raise ConfigurationError(_UNSEALED)
        self.identified = identified
        self.allow_anonymous = allow_anonymous
        self.catalog = Catalog()
        opened = stores.named_store(store, keys) if isinstance(store, str) else store
        self.runtime = Runtime(opened, self.catalog.handlers, replace(options, sealing=self._sealing()))
        self.attachment = Attachment(self.runtime, self.catalog, identify)
        _assembled.add(self)

    @property
    def options(self) -> Options:
        """How this process takes part, as it is configured now."""
        return self.runtime.options

    def configure(
        self,
        *,
        store: str | None,
        worker: bool | None,
        concurrency: int | None,
        queues: checks.Queues | None,
        keys: KeyRing | None = None,
    ) -> None:
        """As `Tasks.configure`.

        Raises:
            StoreUnusable: the URL names no store.
            ConfigurationError: an option has a value that it can't have, or there are keys for a store that is an
                object.
        """
        before = self.options
        self.runtime.options = replace(
            before,
            worker=before.worker if worker is None else worker,
            concurrency=before.concurrency if concurrency is None else checks.count(concurrency, "concurrency"),
            queues=before.queues if queues is None else checks.queues(queues),
        )
        named, keys = self.named if store is None else store, keys or self.keys
        if (named, keys) == (self.named, self.keys):
            return
        if not isinstance(named, str):
            raise ConfigurationError(_UNSEALED)
        self.runtime.store = stores.open_store(named, keys=keys)
        self.named, self.keys = named, keys
        self.runtime.options = replace(self.options, sealing=self._sealing())

    def _sealing(self) -> Sealing:
        """Under which key values are sealed; a store that is an object does as it likes."""
        if not isinstance(self.named, str):
            return None
        return False if self.keys is None or self.keys.sealing is None else self.keys.sealing

    def check_queues(self) -> None:
        """That each queue that is to be served has a tool.

        Raises:
            ConfigurationError: one has none; the message names those that there are.
        """
        known = sorted({handler.placement.queue for handler in self.catalog.handlers.values()})
        for queue in self.options.queues or ():
            if queue not in known:
                raise ConfigurationError(
                    f"no tool belongs to the queue {queue!r}: there is {', '.join(known) or 'none'}"
                )

    def preflight(self) -> None:
        """Open the store once, which brings the schema of an embedded one up to date, and close it again.

        Not from within an event loop.

        Raises:
            SystemExit: it can't be used; the message, one line, says why and what to do.
        """
        try:
            anyio.run(self._open_once)
        except StoreUnusable as error:
            raise SystemExit(f"perdure: {error}") from None

    def take_keys(self) -> None:
        """Seal under the keys of the environment, if there are some, whatever keys the program has given.

        As `perdure serve` and `perdure worker` do, since all processes of one store have to agree. A store of the
        program's own seals by itself.

        Raises:
            SystemExit: what the environment names is none; one line says why.
        """
        if not isinstance(self.named, str):
            return
        try:
            ring = environment.from_environment()
        except ConfigurationError as error:
            raise SystemExit(f"perdure: {error}") from None
        self.configure(store=None, worker=None, concurrency=None, queues=None, keys=ring)

    def warn_of_keys(self) -> None:
        """Say that answers are refused where a balancer spreads them, if this may be one of several servers."""
        if self.attachment.key_of_its_own and isinstance(self.named, str) and stores.spans_machines(self.named):
            logger.warning(
                "the key for requestState is this process's own, so what is asked inside a request can't be answered "
                "to another server or after a restart: pass request_state_security=RequestStateSecurity(keys=[…])"
            )

    async def _open_once(self) -> None:
        await self.runtime.store.open()
        await self.runtime.store.close()

    @asynccontextmanager
    async def working(self, app: MCPServer[Any]) -> AsyncGenerator[None]:
        """The lifespan of `app`, entered without serving it: what `perdure worker` runs inside of.

        Raises:
            ConfigurationError: `app` was put together without these tasks, or without a part of them.
        """
        lifespan = app.settings.lifespan
        if lifespan is None:
            raise ConfigurationError(NO_LIFESPAN)
        async with lifespan(app) as state:
            if not self.attachment.started:
                raise ConfigurationError(NO_LIFESPAN)
            if self.catalog.state is None:
                # `app` was made by hand, around `Tasks.lifespan`: nobody else knows what its lifespan yields.
                self.catalog.state = state
            yield

    def stop_working(self) -> None:
        """Claim no more tasks, ahead of the end: the grace period of those that run begins. On the event loop only."""
        self.runtime.stop_working()

    def end_subscriptions(self) -> None:
        """End all streams and let their clients know, for 1.5 seconds at most. From another thread than the loop's."""
        self.runtime.end_subscriptions(_PARTING)

    def lend(self, store: Store, state: object) -> Store:
        """Use another store, and another state than the server's lifespan yields, while nothing runs.

        Returns the store that was used before.
        """
        before, self.runtime.store = self.runtime.store, store
        self.catalog.state = state
        return before


_assembled: WeakSet[Assembly] = WeakSet()


def assembly_of(app: MCPServer[Any]) -> Assembly | None:
    """What is behind the `Tasks` that `app` was made with, among all of this process; also if `app` lacks a part."""
    return next((assembly for assembly in _assembled if assembly.attachment.is_of(app)), None)
