"""What holds for every test: one event loop implementation, and property tests that judge behaviour, not speed."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.databases import database, emptied_database, empty_database, migrated, pgbouncer, postgres, shared

__all__ = [
    "anyio_backend",
    "database",
    "emptied_database",
    "empty_database",
    "migrated",
    "pgbouncer",
    "postgres",
    "shared",
]

# Before any program is started; processes of pytest-xdist have it from the one that started them.
_FIRST = str(Path(__file__).with_name("started"))
if _FIRST not in os.environ.get("PYTHONPATH", ""):
    os.environ["PYTHONPATH"] = f"{_FIRST}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")

# What a shell starts in the background ignores Ctrl-C, and so does whatever is started from there: the programs that
# tests send it to would not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The machines that run this have two shared cores, so a deadline per example would report the neighbours. In CI the
# examples are the same on each run: a submission is judged by its own change, and the search for new counterexamples
# belongs to a developer's machine, where `HYPOTHESIS_PROFILE=thorough` widens it.
settings.register_profile("dev", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from going through 8,000 tests again and again, none of which ever becomes any."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Name the one event loop that perdure runs on; anyio's plugin would otherwise run each test on all it knows."""
    return "asyncio"
