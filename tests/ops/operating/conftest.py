"""The stores that operators look at, of either kind."""

from pathlib import Path

import pytest


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The URL of a file that is not there yet."""
    return f"sqlite:///{tmp_path / 'tasks.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, file: str) -> str:
    """An empty store."""
    return file if request.param == "sqlite" else request.getfixturevalue("emptied_database")
