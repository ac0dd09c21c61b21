"""Where the suite is put together: a class that has each test of every subject, and the fixtures that they ask for.

A class, since that is what a third party can build on without our knowing: several stores in one file are several
classes, a fixture or a test is replaced by a method of its name, and marks are put on the class. The tests themselves
are plain functions in a module for each subject. They are named below, for two reasons: pytest has to hear of a module
before it is imported, else a failed `assert` would say nothing; and what is missing in an installation is an error
then, and no suite that is smaller than it seems.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from importlib import import_module
from types import FunctionType
from typing import ClassVar, Final

import pytest

from perdure.store.base import Store
from perdure.store.routes import Routes
from perdure.testing.clock import VirtualClock

from .support import Changes, MakeRoutes, MakeStore

__all__ = ["OF_ROUTES", "SUBJECTS", "RoutesSuite", "StoreSuite"]

SUBJECTS: Final = (
    "clients",
    "idempotency",
    "workers",
    "writes",
    "journal",
    "parking",
    "questions",
    "timers",
    "turns",
    "retries",
    "external",
    "minding",
    "takeover",
    "deadlines",
    "housekeeping",
    "operators",
    "operating",
    "changes",
    "watching",
)
"""The modules of the suite."""
OF_ROUTES: Final = ("routes", "doubtful_routes")
"""Those of the suite for the routes of a gateway."""


class StoreSuite:
    """All tests of the conformance suite. Derive a class from it whose name begins with `Test`.

    It asks for one fixture, which is yours: `make_store`, a function that is given a clock (a reading in milliseconds
    since the epoch) and returns a store that goes by it, not open yet and on storage of its own. A method of your class
    will do, or a fixture of your `conftest.py`. All other fixtures may be replaced in the same way.
    """

    pytestmark: ClassVar = [pytest.mark.anyio, pytest.mark.usefixtures("anyio_backend")]

    @pytest.fixture(scope="session")
    @classmethod
    def anyio_backend(cls) -> str:
        """The event loop: stores run on asyncio."""
        return "asyncio"

    @pytest.fixture
    def clock(self) -> VirtualClock:
        """The time of the store."""
        return VirtualClock()

    @pytest.fixture
    async def store(self, make_store: MakeStore, clock: VirtualClock) -> AsyncIterator[Store]:
        """The store under test, open and empty."""
        store = make_store(clock)
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    def changes(self, store: Store) -> Changes:
        """Everything that `store` announces from now on."""
        changes = Changes()
        store.subscribe(changes)
        return changes


class RoutesSuite:
    """The same for the `Routes` of a gateway, with one fixture that is yours: `make_routes`, as `make_store` is."""

    pytestmark: ClassVar = StoreSuite.pytestmark
    anyio_backend = StoreSuite.anyio_backend
    clock = StoreSuite.clock

    @pytest.fixture
    async def routes(self, make_routes: MakeRoutes, clock: VirtualClock) -> AsyncIterator[Routes]:
        """The routes under test, open and empty."""
        routes = make_routes(clock)
        await routes.open()
        yield routes
        await routes.close()


def _tests(subject: str) -> Iterator[tuple[str, FunctionType]]:
    for name, test in vars(import_module(f"{__package__}.{subject}")).items():
        if name.startswith("test_") and isinstance(test, FunctionType):
            yield name, test


def _gather(suite: type, subjects: Sequence[str]) -> None:
    pytest.register_assert_rewrite(*(f"{__package__}.{subject}" for subject in subjects))
    for subject in subjects:
        for name, test in _tests(subject):
            if hasattr(suite, name):  # one of the two would never run
                raise TypeError(f"The suite has two tests of the name {name}")
            setattr(suite, name, staticmethod(test))


_gather(StoreSuite, SUBJECTS)
_gather(RoutesSuite, OF_ROUTES)
