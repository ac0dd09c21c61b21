"""Two tables of routes side by side, under one clock: whatever is asked of both, nobody can tell them apart."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.domain.errors import PerdureError
from perdure.domain.model import Owner
from perdure.domain.routing import UNHEARD_MS
from perdure.store.memory import MemoryRoutes
from perdure.store.routes import Routes
from perdure.store.sqlite import SQLiteRoutes
from tests.store.stateful import MEMORY
from tests.store.support import ADA, BOB, ELSEWHERE, VirtualClock

OWNERS = (ADA, BOB, ELSEWHERE)
# Few, so that they meet: a route is taken, stands, expires, and is laid again.
IDS = tuple(f"tsk_{number}" for number in range(5))

owners, ids = st.sampled_from(OWNERS), st.sampled_from(IDS)
backends, tasks = st.sampled_from(["reports", "renders"]), st.sampled_from(["1", "2", "3"])
ttls = st.sampled_from([None, 0, 1_000, 20_000, -1, 2**70])
limits = st.sampled_from([0, 1, 10])


class BothRoutes(RuleBasedStateMachine):
    """Each move asks the same of both and compares the answers; the invariant compares all that can be seen.

    By default SQLite beside the reference model.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.stack = contextlib.ExitStack()

    @initialize()
    def open(self) -> None:
        self.run = self.stack.enter_context(asyncio.Runner()).get_loop().run_until_complete
        self.pair = self.routes()
        for routes in self.pair:
            self.run(routes.open())
            self.stack.callback(self.close, routes)

    def routes(self) -> tuple[Routes, Routes]:
        """The two, of which the first is the model."""
        return MemoryRoutes(self.clock), self.on_sqlite()

    def on_sqlite(self) -> Routes:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None))
        return SQLiteRoutes(f"sqlite:///{Path(folder) / 'tasks.db'}", self.clock)

    def close(self, routes: Routes) -> None:
        self.run(routes.close())

    def teardown(self) -> None:
        self.stack.close()

    def both(self, verb: Callable[[Routes], Awaitable[object]]) -> None:
        one, other = (self.outcome(verb, routes) for routes in self.pair)
        assert one == other

    def outcome(self, verb: Callable[[Routes], Awaitable[object]], routes: Routes) -> object:
        async def ask() -> object:
            return await verb(routes)

        try:
            return self.run(ask())
        except PerdureError as error:
            return type(error), str(error)

    # -- the moves -----------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1_000, 20_000, UNHEARD_MS]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(owner=owners, backend=backends, task=tasks, ttl_ms=ttls, id_=ids)
    def lay(self, owner: Owner, backend: str, task: str, ttl_ms: int | None, id_: str) -> None:
        self.both(lambda routes: routes.lay(owner, backend, task, ttl_ms, id_))

    @rule(id_=ids, ttl_ms=ttls, ended=st.booleans())
    def update(self, id_: str, ttl_ms: int | None, ended: bool) -> None:
        self.both(lambda routes: routes.update(id_, ttl_ms=ttl_ms, ended=ended))

    @rule(limit=limits, again_ms=st.sampled_from([1, 1_000, 2 * UNHEARD_MS]))
    def take_doubtful(self, limit: int, again_ms: int) -> None:
        self.both(lambda routes: routes.take_doubtful(limit, again_ms))

    @rule(limit=limits, retention_ms=st.sampled_from([0, 1_000]))
    def purge(self, limit: int, retention_ms: int) -> None:
        self.both(lambda routes: routes.purge(limit, retention_ms))

    @rule(owner=owners, id_=ids)
    def find(self, owner: Owner, id_: str) -> None:
        self.both(lambda routes: routes.find(owner, id_))

    @invariant()
    def all_that_can_be_seen_is_the_same(self) -> None:
        for owner in OWNERS:
            self.both(lambda routes, owner=owner: routes.find_many(owner, IDS))
        self.both(lambda routes: routes.count())
