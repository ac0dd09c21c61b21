"""The backends, each held against the suite that whoever writes a store runs. A new one is a new class."""

import inspect
from pathlib import Path

import pytest

from perdure.store.keys import KeyRing
from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from perdure.store.sealing import codec_for
from perdure.store.sqlite import SQLiteStore
from perdure.testing.stores import MakeStore, StoreSuite
from tests.store.sealed import NEW, OLD

SEALED = codec_for(KeyRing(NEW, OLD))
VALUES = ("idempotency", "journal", "questions", "external", "operators", "operating")
"""The subjects of the suite in which values of every kind are stored and read again."""


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return MemoryStore


class TestSQLiteStore(StoreSuite):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda clock: SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}", clock)


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    def make_store(self, emptied_database: str) -> MakeStore:
        return lambda clock: PostgresStore(emptied_database, clock)


class AboutValues(StoreSuite):
    """A part of it, for stores whose values are sealed. The whole would find no more: the stateful tests are sealed."""


for _name, _test in inspect.getmembers(StoreSuite, inspect.isfunction):
    if _name.startswith("test_") and _test.__module__.rpartition(".")[2] not in VALUES:
        setattr(AboutValues, _name, None)


class TestSealedSQLiteStore(AboutValues):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda clock: SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}", clock, codec=SEALED)


class TestSealedPostgresStore(AboutValues):
    @pytest.fixture
    def make_store(self, emptied_database: str) -> MakeStore:
        return lambda clock: PostgresStore(emptied_database, clock, codec=SEALED)
