"""PostgreSQL beside SQLite, under one clock: whatever is asked of both, nobody can tell them apart.

PostgreSQL's values are sealed, which nobody can tell either.

Not beside the reference model, with which it shares the functions that decide (`perdure.store.verbs`); SQLite, which
has its own, is held against the model by `tests/store/test_stateful.py`.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from perdure.store.base import Store
from perdure.store.keys import KeyRing
from perdure.store.postgres import PostgresRoutes, PostgresStore
from perdure.store.postgres.url import parse
from perdure.store.routes import Routes
from perdure.store.sealing import codec_for
from tests.databases import Shared
from tests.store.sealed import OLD
from tests.store.stateful import Stores
from tests.store.stateful_routes import BothRoutes
from tests.support import PATIENCE

pytestmark = [
    pytest.mark.timeout(900),  # to run takes seconds; to make a failure small enough to read takes minutes
    pytest.mark.usefixtures("untraced"),
]

_LEVEL = """
SELECT setval(pg_get_serial_sequence('perdure.task', 'seq'), $1, false), setval('perdure.fence', $2, false)"""


class OnPostgres(Stores):
    """Its sequences count a task that was refused, and a claim that came too late. Here they are set back each time."""

    shared: Shared
    latest = 2
    every = 4

    def stores(self) -> tuple[Store, Store]:
        url = self.shared.emptied()
        self.levelling = self.run(parse(url).connect_directly(PATIENCE))
        self.stack.callback(lambda: self.run(self.levelling.close()))
        return self.on_sqlite(), PostgresStore(url, self.clock, codec=codec_for(KeyRing(OLD)), lanes=1)

    def level(self) -> None:
        fence = max((claim.fence for claim in self.claims), default=0)
        self.run(self.levelling.execute(_LEVEL, self.number + 1, fence + 1))


def test_nobody_can_tell_postgresql_from_sqlite(shared: Shared) -> None:
    machine = type("OnShared", (OnPostgres,), {"shared": shared})
    # A few examples: each one here is hundreds of round trips.
    few = settings(max_examples=max(8, settings().max_examples // 10), stateful_step_count=30)
    run_state_machine_as_test(machine, settings=few)


class RoutesOnPostgres(BothRoutes):
    """Beside SQLite's, with which it shares no statement."""

    shared: Shared

    def routes(self) -> tuple[Routes, Routes]:
        return self.on_sqlite(), PostgresRoutes(self.shared.emptied(), self.clock, lanes=1)


def test_nor_are_its_routes(shared: Shared) -> None:
    machine = type("RoutesOnShared", (RoutesOnPostgres,), {"shared": shared})
    few = settings(max_examples=max(8, settings().max_examples // 10), stateful_step_count=30)
    run_state_machine_as_test(machine, settings=few)
