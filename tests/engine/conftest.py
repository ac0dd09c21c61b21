"""The stores that the engine's tests run over, and its waits, shortened."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from tests.engine.rigged import Rigged
from tests.store.support import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Store]:
    """An open store, once for each backend. Its time stands still, so no lease lapses unless the test wants it."""
    store = (
        MemoryStore(clock) if request.param == "memory" else SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}", clock)
    )
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def rigged(clock: VirtualClock) -> Rigged:
    return Rigged(MemoryStore(clock))


@pytest.fixture
def gated(store: Store) -> Rigged:
    """The same over each backend: for races, whose winner the store decides."""
    return Rigged(store)


@pytest.fixture
async def two_processes(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[tuple[Store, Store]]:
    """One SQLite file as two processes see it: neither hears of what the other one does."""
    ours, theirs = (SQLiteStore(f"sqlite:///{tmp_path / 'tasks.db'}", clock) for _ in range(2))
    await ours.open()
    await theirs.open()
    yield ours, theirs
    await theirs.close()
    await ours.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Shorten the wait for a store that is unavailable, and set how long a shutdown waits for cleanup."""

    def shorten(unwind: float) -> None:
        monkeypatch.setattr("perdure.engine.worker._UNWIND", unwind)

    monkeypatch.setattr("perdure.engine.patience.BACKOFF", 0.01)
    return shorten
