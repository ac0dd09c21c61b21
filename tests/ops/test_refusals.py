"""A database that can't be used, whatever is to be done with it: one line, with cause and remedy, and no secret.

What each cause is called is tested with the store; here that every command says it, and nothing besides.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from perdure.ops.cli import main
from perdure.testing.postgresql import Cluster

PROGRAM: Final = """\
from perdure import Tasks
tasks = Tasks("sqlite:////nowhere/tasks.db")
tasks.configure(store={store!r})
mcp = tasks.server("program")

@tasks.tool()
async def report() -> None: ...
"""
RUN: Final = 'mcp.run("streamable-http", port=0)\n'
WRONG: Final = "xyzzy"

CAUSES: Final = {
    "refused": "does not answer",
    "wrong password": "refuses the password, or there is none: correct it",
    "missing database": "names a database that does not exist: create it (CREATE DATABASE), or name another",
    "not migrated": "has no tables of Perdure yet: run `perdure migrate ",
    "read-only": "is read-only, as a standby is",
    "unreadable": "The URL of the database can't be used: a host or a port in it can't be read; write host:port",
}

COMMANDS: Final = ("serve", "worker", "status", "tasks", "migrate", "program")
REMEDY: Final = ("migrate", "not migrated")


@pytest.fixture
def urls(postgres: Cluster, empty_database: str) -> dict[str, str]:
    postgres.sql("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'xyzzy'")
    postgres.sql("ALTER ROLE reader SET default_transaction_read_only = on")
    name = empty_database.rpartition("/")[2]
    return {
        "refused": f"postgresql://ada:{WRONG}@127.0.0.1:1/tasks",
        "wrong password": postgres.url(name, password=WRONG),
        "missing database": postgres.url("nothing"),
        "not migrated": empty_database,
        "read-only": postgres.url(name, user="reader", password=WRONG),
        "unreadable": f"postgresql://ada:{WRONG}@127.0.0.1:54x2/tasks",
    }


@pytest.mark.parametrize(("command", "cause"), [each for each in product(COMMANDS, CAUSES) if each != REMEDY])
def test_it_is_told_in_one_line(
    command: str, cause: str, urls: dict[str, str], postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # a program that is loaded comes first on it
    url = urls[cause]
    program = tmp_path / f"{tmp_path.name}.py"
    program.write_text(PROGRAM.format(store="sqlite:////nowhere/tasks.db"))
    arguments = {
        "serve": ["serve", f"{program}:mcp", "--store", url],
        "worker": ["worker", f"{program}:mcp", "--store", url],
        "status": ["status", "--store", url],
        "tasks": ["tasks", "show", "tsk_" + "a" * 32, "--store", url],
        "migrate": ["migrate", "--sql", url],
        "program": ["serve", f"{program}:mcp"],
    }[command]
    if command == "program":  # it serves by itself as soon as it is loaded
        program.write_text(PROGRAM.format(store=url) + RUN)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1, done.output
    (line,) = done.output.splitlines()
    assert line.startswith("perdure: ")
    assert CAUSES[cause] in line
    assert WRONG not in line
    assert postgres.password not in line
