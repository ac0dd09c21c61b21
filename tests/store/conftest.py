"""What the tests of one backend share. The suite that each of them passes is run by `test_conformance.py`."""

import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from coverage import Coverage

from perdure.store.sqlite import schema
from perdure.testing import VirtualClock
from tests.store.sealed import Place


@pytest.fixture
def untraced() -> Iterator[None]:
    """For what comes by the same branches thousands of times, as others do once: to trace it would double its time."""
    tracing = Coverage.current()
    if tracing is not None:
        tracing.stop()
    yield
    if tracing is not None:
        tracing.start()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> dict[str, sqlite3.Connection]:
    """The real connections of the first store that is opened from now on."""
    made: dict[str, sqlite3.Connection] = {}
    connect_writer, connect_reader = schema.connect_writer, schema.connect_reader

    def writer(path: Path) -> sqlite3.Connection:
        connection = connect_writer(path)
        made.setdefault("writer", connection)
        return connection

    def reader(path: Path) -> sqlite3.Connection:
        connection = connect_reader(path)
        made.setdefault("reader", connection)
        return connection

    monkeypatch.setattr(schema, "connect_writer", writer)
    monkeypatch.setattr(schema, "connect_reader", reader)
    return made


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


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, path: Path) -> Place:
    """An empty database, of either kind."""
    if request.param == "sqlite":
        return Place(f"sqlite:///{path}")
    return Place(request.getfixturevalue("emptied_database"))
