"""Nothing that may hold a password is quoted: whatever the command, and wherever on its line the URL stands."""

import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from perdure import Tasks
from perdure.ops import stores
from perdure.ops.cli import main
from perdure.ops.serve import serve
from perdure.store.keys import KEYS, new_key

PROGRAM: Final = """\
from perdure import Tasks
tasks = Tasks("sqlite:///unused.db")
mcp = tasks.server("program")

@tasks.tool()
async def report() -> None: ...
"""
URLS: Final = (
    "mysql://ada:xyzzy@db/tasks",
    "redis://:xyzzy@db",
    "postgresql://ada:xyzzy@db:54x2/tasks",
    "postgresql://ada:xyzzy",
    "postgresql://ada:xy#zzy@db/tasks#xyzzy",
    "postgresql://ada:xyzzy @db/ta sks",
    "postgresql://ada@db:54x2/tasks?password=xyzzy",
    "postgresql://ada@db/tasks?pasword=xyzzy&%",
    "postgresql+asyncpg://ada:xyzzy@db/tasks",
    "POSTGRESQL://ada:xyzzy@db/tasks",
    "postgres:ada:xyzzy@db/tasks",
    "ada:xyzzy@db/tasks",
    "sqlite://ada:xyzzy@db/tasks.db",
    "sqlite:///tasks.db?key=xyzzy",
    "host=db user=ada password=xyzzy dbname=tasks",
    "host=db user=ada password = 'xyzzy'",
)
TASK: Final = "tsk_" + "a" * 32


def lines(url: str, program: str) -> dict[str, list[str]]:
    """Every command, with the URL where it belongs and where it does not."""
    return {
        **{f"{name}, misplaced": [name, url] for name in main.commands},
        **{f"{name}, one too many": [name, "a:b", url] for name in main.commands},
        **{f"{name}, mistyped": [name, f"--stor={url}"] for name in main.commands},
        **{f"{name}, as a number": [name, f"--port={url}"] for name in main.commands},
        **{f"{name} --store": [name, f"{program}:mcp", "--store", url] for name in ("serve", "worker")},
        **{f"{name} --store alone": [name, "--store", url] for name in ("status", "migrate", "rekey")},
        "inspect --store": ["inspect", TASK, "--store", url],
        "migrate --sql": ["migrate", "--sql", url],
        "migrate --check": ["migrate", "--check", url],
        "no command": [url],
        "no command, mistyped": [f"--stor={url}"],
    }


COMMANDS: Final = list(lines("", ""))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_says_what_may_hold_a_password(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(KEYS, new_key("k1"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # a program that is loaded comes first on it
    program = tmp_path / f"{tmp_path.name}.py"
    program.write_text(PROGRAM)
    for url in URLS:
        done = CliRunner().invoke(main, lines(url, str(program))[command])
        assert isinstance(done.exception, SystemExit), (url, done.exception)
        assert done.exit_code in (1, 2), url
        assert "zzy" not in done.output, url


@pytest.mark.parametrize("url", URLS)
def test_nor_does_a_program_that_serves_itself(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    mcp = Tasks("sqlite:///unused.db").server("program")
    for line in ([url], [f"--stor={url}"], ["--port", url], ["--store", url]):
        with pytest.raises(SystemExit) as ended:
            serve(mcp, line)
        assert "zzy" not in f"{ended.value}{capsys.readouterr()}"


def test_what_holds_no_password_is_quoted() -> None:
    for line, said in (
        (["serve", "nowhere:mcp"], "there is no module 'nowhere' here"),
        (["serve", "a:b", "c"], "unexpected extra argument (c)"),
        (["status", "--stor=x"], "--stor"),
        (["stats"], "No such command 'stats'"),
    ):
        assert said in CliRunner().invoke(main, line).output


@pytest.mark.parametrize("target", ["postgresql://ada@db/tasks", "sqlite:///tasks.db"])
def test_a_store_in_the_place_of_a_module_is_told_where_it_belongs(target: str) -> None:
    done = CliRunner().invoke(main, ["status", target])
    assert (done.exit_code, "a store goes by --store URL" in done.output) == (2, True)


@pytest.mark.parametrize("url", [*URLS, "ada:xyzzy"])
def test_a_store_is_called_by_nothing_that_may_hold_a_password(url: str) -> None:
    assert "zzy" not in stores.described(url)
