"""The backends that the conformance suite runs against. A new one is a new entry of `BACKENDS`."""

import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from tests.store.support import Changes, StoreFactory, VirtualClock


def _memory(_: Path) -> StoreFactory:
    return MemoryStore


def _sqlite(folder: Path) -> StoreFactory:
    return lambda clock: SQLiteStore(f"sqlite:///{folder / 'tasks.db'}", clock)


BACKENDS: dict[str, Callable[[Path], StoreFactory]] = {"memory": _memory, "sqlite": _sqlite}


@pytest.fixture(params=BACKENDS)
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFactory:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(factory: StoreFactory, clock: VirtualClock) -> AsyncIterator[Store]:
    """An open and empty store, once for each backend."""
    store = factory(clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def changes(store: Store) -> Changes:
    """Everything that `store` announces from now on."""
    changes = Changes()
    store.subscribe(changes)
    return changes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with a megabyte of room. Only root may make one, and not everywhere."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
