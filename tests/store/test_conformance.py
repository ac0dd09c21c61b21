"""The backends, each held against the suite that whoever writes a store runs. A new one is a new class."""

from pathlib import Path

import pytest

from perdure.store.memory import MemoryStore
from perdure.store.postgres import PostgresStore
from perdure.store.sqlite import SQLiteStore
from perdure.testing.stores import MakeStore, StoreSuite


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
