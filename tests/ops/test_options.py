"""PERDURE_STORE: the store of every command that has `--store`, unless that says another."""

import json
import logging
import sqlite3
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from perdure.ops.cli import main
from perdure.ops.operating import tasks

ELSEWHERE = """\
from perdure import Tasks
tasks = Tasks("sqlite:////nowhere/tasks.db")
mcp = tasks.server("elsewhere")

@tasks.tool()
async def report() -> None: ...
"""
SERVING = (
    ELSEWHERE
    + """
from perdure import serve
serve(mcp, ["--stdio"])
"""
)


def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the store that the environment names. It is there."""
    monkeypatch.setattr(sys, "path", [*sys.path])  # a program that is loaded comes first on it
    monkeypatch.setenv("PERDURE_STORE", url(path := tmp_path / "named.db"))
    assert run("migrate").exit_code == 0
    return path


def run(*command: str) -> Result:
    return CliRunner().invoke(main, command)


def test_what_looks_at_a_store_looks_at_that_one(named: Path) -> None:
    done = run("status", "--json")
    assert json.loads(done.output)["store"] == url(named)
    assert run("tasks", "show", unknown := "tsk_" + "a" * 32).output.startswith(
        f"perdure: There is no task {unknown}: "
    )


def test_it_goes_before_the_programs_own(named: Path, tmp_path: Path) -> None:
    (program := tmp_path / "elsewhere_status.py").write_text(ELSEWHERE)
    assert json.loads(run("status", f"{program}:mcp", "--json").output)["store"] == url(named)


def test_and_the_option_before_both(named: Path, tmp_path: Path) -> None:
    line = f"perdure: there is no file {tmp_path / 'other.db'}\n"
    assert run("status", "--store", url(tmp_path / "other.db")).output == line
    assert run("tasks", "show", "tsk_" + "a" * 32, "--store", url(tmp_path / "other.db")).output == line


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_what_serves_and_what_works_use_it(command: str, named: Path, tmp_path: Path) -> None:
    with sqlite3.connect(named) as connection:
        connection.execute("PRAGMA user_version = 4711")
    connection.close()
    (program := tmp_path / f"elsewhere_{command}.py").write_text(ELSEWHERE)
    done = run(command, f"{program}:mcp")
    assert done.exit_code == 1
    assert done.output.startswith(f"perdure: {named} has schema version 4711")


def test_so_does_a_program_that_serves_itself(named: Path, tmp_path: Path) -> None:
    with sqlite3.connect(named) as connection:
        connection.execute("PRAGMA user_version = 4711")
    connection.close()
    (program := tmp_path / "elsewhere_itself.py").write_text(SERVING)
    done = run("serve", f"{program}:mcp")
    assert done.output.startswith(f"perdure: {named} has schema version 4711")


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_level_that_is_none_is_refused_and_help_says_which_there_are(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run(command, "--help").output
    assert "PERDURE_LOG_LEVEL" in shown
    assert "[debug|info|warning|error]" in shown
    assert run(command, "x:y", "--log-level", "loud").exit_code == 2
    monkeypatch.setenv("PERDURE_LOG_LEVEL", "loud")
    assert "'loud' is not one of 'debug', 'info', 'warning', 'error'" in run(command, "x:y").output


@pytest.mark.parametrize("level", ["debug", "DEBUG"])
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_command_sets_the_level_that_it_is_told(
    command: str, level: str, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("perdure"), "level", logging.NOTSET)
    (program := tmp_path / f"levels_{command}_{level}.py").write_text(ELSEWHERE)
    done = run(command, f"{program}:mcp", "--log-level", level, "--store", "nothing://")
    assert done.exit_code == 1
    assert logging.getLogger("perdure").level == logging.DEBUG


def test_help_names_it() -> None:
    for command in (["serve"], ["worker"], ["status"], *(["tasks", name] for name in tasks.commands)):
        assert "PERDURE_STORE" in run(*command, "--help").output
