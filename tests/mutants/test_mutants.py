"""Safeguards that are worth a test of their tests: without one of them, the ordinary suite fails.

A mutant is our code with one safeguard less (`plugin`). For each, the tests that have to notice are named here, a few
out of many, and run in a process of their own, with the mutant; all of them are run once without any as well, since a
test that fails anyhow notices nothing.
"""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests import copies
from tests.mutants import plugin
from tests.support import PATIENCE

ROOT: Final = Path(__file__).parents[2]
WRITES: Final = ("report", "record", "park", "finish", "release", "retry")


@dataclass(frozen=True)
class Caught:
    """What notices a mutant, and a part of what it says then."""

    tests: tuple[str, ...]
    says: str


def fenced(suite: str) -> tuple[str, ...]:
    """Each write by a worker whose run somebody else has by now. What else becomes of a run has no mutant."""
    test = f"tests/store/test_conformance.py::{suite}::test_a_fence_that_no_longer_holds_writes_nothing"
    return tuple(f"{test}[release_and_claim-{write}]" for write in WRITES)


CAUGHT: Final = {
    "fence": Caught(
        fenced("TestSQLiteStore"),
        "DID NOT RAISE",
    ),
    "fence_of_a_record": Caught(
        fenced("TestPostgresStore"),
        "DID NOT RAISE",
    ),
    "anybodys_route": Caught(
        ("tests/store/test_routes.py::TestSQLiteRoutes::test_a_route_is_its_owner_s_alone",),
        "DID NOT RAISE",
    ),
    "shared_route": Caught(
        (
            "tests/store/test_routes.py"
            "::TestSQLiteRoutes::test_a_task_of_another_owner_is_not_shared_and_stays_as_it_is",
        ),
        "DID NOT RAISE",
    ),
    "impatient_purge": Caught(
        (
            "tests/store/test_routes.py"
            "::TestSQLiteRoutes::test_a_route_is_never_purged_before_its_task_is_known_to_be_over[0]",
        ),
        "assert 1 == 0",
    ),
    "late_lock": Caught(
        ("tests/store/test_locking.py::test_nobody_else_can_write_from_the_first_look_on",),
        "AssertionError: assert ['",  # what was looked at while others might have written
    ),
    "task_first": Caught(
        ("tests/store/test_locking.py::test_the_run_is_written_before_its_task",),
        "AssertionError: assert ['task', 'run'] == ['run', 'task']",
    ),
    "unguarded_row": Caught(
        ("tests/store/test_sqlite.py::test_a_task_that_somebody_ended_between_the_look_and_the_write_stays_as_it_is",),
        "DID NOT RAISE",
    ),
    "unguarded_rows": Caught(
        (
            "tests/store/postgres/test_sheet.py"
            "::test_a_task_that_is_over_is_not_overwritten_though_its_run_is_still_there",
        ),
        "assert isinstance(results[0], IllegalTransition)",
    ),
    "unguarded_discard": Caught(
        ("tests/store/test_conformance.py::TestSQLiteStore::test_what_is_unfinished_or_unknown_is_passed_over",),
        "assert 3 == 0",
    ),
    "unguarded_discards": Caught(
        ("tests/store/test_conformance.py::TestPostgresStore::test_what_is_unfinished_or_unknown_is_passed_over",),
        "assert 3 == 0",
    ),
    "unbound": Caught(
        ("tests/store/test_sealed.py::test_one_task_s_values_are_not_served_as_another_s[sqlite]",),
        "DID NOT RAISE",
    ),
    "of_nobody": Caught(
        ("tests/store/test_sealed.py::test_nor_to_another_owner_whose_name_was_put_there[sqlite]",),
        "DID NOT RAISE",
    ),
    "arrow_out_of_an_end": Caught(
        ("tests/domain/test_lifecycle.py::test_no_arrow_leaves_a_terminal_status",),
        "AssertionError: assert not [<Status.COMPLETED: 'completed'>]",
    ),
}


async def run(*arguments: str) -> tuple[int | None, str]:
    """pytest over a selection of our suite, in a process of its own that loads no more than it needs."""
    plugins = ("anyio.pytest_plugin", "pytest_timeout", "no:cacheprovider", "tests.mutants.plugin")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-q", *(part for name in plugins for part in ("-p", name)), *arguments]
    ended = await copies.ended(command, env={**environment, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, within=4 * PATIENCE)
    return ended.code, ended.output + ended.errors


def test_it_is_said_of_each_mutant_what_notices_it() -> None:
    assert set(CAUGHT) == set(plugin.MUTANTS)


@pytest.mark.timeout(180)  # some make a PostgreSQL server of their own
@pytest.mark.parametrize("mutant", plugin.MUTANTS)
async def test_a_mutant_is_noticed(mutant: str) -> None:
    code, output = await run("--mutant", mutant, *CAUGHT[mutant].tests)
    assert code == pytest.ExitCode.TESTS_FAILED, output
    assert re.search(r"^\d+ failed(, \d+ passed)? in ", output, re.MULTILINE), output
    assert CAUGHT[mutant].says in output


@pytest.mark.timeout(180)  # all of them, one after the other
async def test_without_a_mutant_the_same_tests_pass() -> None:
    tests = [test for caught in CAUGHT.values() for test in caught.tests]
    code, output = await run(*tests)
    assert code == pytest.ExitCode.OK, output
    assert re.search(r"^\d+ passed in ", output, re.MULTILINE), output


def test_a_mutant_that_changes_nothing_is_an_error() -> None:
    module = ModuleType("module")
    module.__dict__["TEXT"] = "a = ? AND b = ?"
    for absent in ("c = ?", " = ?"):
        with pytest.raises(pytest.UsageError, match="stale"):
            plugin.change(module, "TEXT", absent, "")
    with pytest.raises(pytest.UsageError, match="stale"):
        plugin.rewrite(plugin, "change", '"BEGIN EXCLUSIVE"', '"BEGIN"')
