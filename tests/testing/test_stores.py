"""The suite for stores, as a third party has it: in a project of theirs, with nothing of our configuration."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

import pytest

from perdure.testing import stores
from perdure.testing.stores import suite
from tests import copies

pytestmark = pytest.mark.timeout(180)  # a project of its own for each, on a machine that others use
DEADLINE: Final = 170.0
"""Seconds for one run of pytest with all that it starts: what a test may take here, but for a little."""
EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "test_my_store.py"
BROKEN: Final = """
import pytest

from perdure.store.memory import MemoryStore
from perdure.testing.stores import StoreSuite


class Deaf(MemoryStore):
    async def request_cancel(self, owner, task_id):
        return await self.get(owner, task_id)


class TestDeaf(StoreSuite):
    pass
"""
FIXTURE: Final = """
import pytest


@pytest.fixture
def make_store():
    from test_deaf import Deaf

    return Deaf
"""


def environment() -> dict[str, str]:
    """That of a process which is not told that it was started from a test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**own, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


async def python(*arguments: str, cwd: Path) -> tuple[int, str]:
    """What a Python process comes to that knows nothing of the one it was started from."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-B",
        *arguments,
        cwd=cwd,
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(DEADLINE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, output.decode()


async def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """pytest, with anyio's plugin, and with warnings for errors."""
    (folder / "pytest.ini").touch()
    plugins = ("-p", "anyio.pytest_plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, *arguments]
    ended = await copies.ended(command, cwd=folder, env=environment(), within=DEADLINE)
    return ended.code, ended.output + ended.errors


def test_each_module_of_the_suite_is_a_part_of_it() -> None:
    """Each but what puts it together, and what it is made with."""
    folder = Path(stores.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {
        *suite.SUBJECTS,
        *suite.OF_ROUTES,
        "__init__",
        "suite",
        "support",
    }


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (tmp_path / "test_my_store.py").write_text(EXAMPLE.read_text("utf-8"), "utf-8")
    return tmp_path


async def test_the_example_passes_and_is_all_of_the_suite(example: Path) -> None:
    code, output = await run(example, "--import-mode=importlib")
    assert code == 0, output
    passed = re.search(r"^(\d+) passed in", output, re.MULTILINE)
    assert passed is not None, output
    assert int(passed[1]) > 400


async def test_its_tests_are_the_same_for_several_processes(example: Path) -> None:
    """xdist refuses to begin if two of its processes find other tests, or the same in another order."""
    code, output = await run(example, "-p", "xdist.plugin", "-n", "2", "-k", "tenant")
    assert code == 0, output
    assert re.search(r"^\d+ passed in", output, re.MULTILINE), output


async def test_a_store_that_breaks_its_promise_fails_and_the_report_says_what_was_compared(tmp_path: Path) -> None:
    """With the fixture in a `conftest.py`, where it serves just as well."""
    (tmp_path / "test_deaf.py").write_text(BROKEN, "utf-8")
    (tmp_path / "conftest.py").write_text(FIXTURE, "utf-8")
    code, output = await run(tmp_path, "-k", "a_cancellation_at_once_is_announced_as_the_end")
    assert code == 1, output
    assert "E       AssertionError: assert [] == [Change(" in output
    assert "1 failed" in output


async def test_without_a_store_to_test_the_fixture_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_deaf.py").write_text(BROKEN, "utf-8")
    code, output = await run(tmp_path, "-k", "reading_changes_nothing")
    assert code == 1, output
    assert "fixture 'make_store' not found" in output


async def test_the_harness_needs_no_pytest_and_the_suite_says_that_it_does(tmp_path: Path) -> None:
    without = "import sys; sys.modules['pytest'] = None; import perdure.testing"
    code, output = await python("-c", without, cwd=tmp_path)
    assert code == 0, output
    code, output = await python("-c", f"{without}.stores", cwd=tmp_path)
    assert code == 1
    assert "perdure.testing.stores needs pytest: pip install 'perdure[testing]'" in output


def test_two_tests_of_one_name_are_an_error() -> None:
    """One of them would never run."""
    with pytest.raises(TypeError, match="two tests of the name test_a_created_task_is_working"):
        suite._gather(type("Fresh", (), {}), ("clients", "clients"))  # pyright: ignore[reportPrivateUsage] - there are no two
