"""What can't be served is refused in one line that says what to do, before the port opens."""

import asyncio
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import pytest

from tests import copies
from tests.acceptance.support import REPORT_SERVER, accepts, free_port, store_url
from tests.support import PATIENCE

PERDURE: Final = str(Path(sys.executable).with_name("perdure"))
PROGRAM: Final = """\
from perdure import Tasks
tasks = Tasks({store!r})
mcp = tasks.server("small")
if __name__ == "__main__":
    mcp.run("streamable-http", port={port}, host={host!r})
"""
OWN_SERVER: Final = """\
from mcp.server.mcpserver import MCPServer
from perdure import Tasks
tasks = Tasks({store!r})
mcp = MCPServer("own", extensions=[tasks], middleware=[tasks.middleware], lifespan=tasks.lifespan)
"""
FAILING_SERVER: Final = """\
from contextlib import asynccontextmanager
from perdure import Tasks
tasks = Tasks({store!r})

@asynccontextmanager
async def lifespan(server):
    raise RuntimeError("no database")
    yield

mcp = tasks.server("own", lifespan=lifespan)
"""


# -- refusals ----------------------------------------------------------------------------------------------------------


def refusal(folder: Path, *command: str, port: int = 0) -> str:
    """What a command that must not serve says before it ends: one line of ours, without its `perdure: `."""
    status, output, complaints = ended(folder, *command, port=port)
    assert status == 1, complaints
    assert not output
    lines = complaints.splitlines()
    assert len(lines) == 1, complaints
    assert lines[0].startswith("perdure: ")
    return lines[0].removeprefix("perdure: ")


def usage_error(folder: Path, *command: str, port: int = 0) -> str:
    """What is wrong with a command's arguments, as click says it: after the usage, in one line."""
    status, output, complaints = ended(folder, *command, port=port)
    assert status == 2, complaints
    assert not output
    first, *_, last = complaints.splitlines()
    assert first.startswith("Usage: ")
    assert last.startswith("Error: ")
    assert "Traceback" not in complaints
    return last.removeprefix("Error: ")


def ended(folder: Path, *command: str, port: int) -> tuple[int, str, str]:
    """Run a command to its end in `folder`, watching the port all the while."""
    deadline = time.monotonic() + PATIENCE
    with TemporaryFile() as output, TemporaryFile() as errors:
        process = copies.start(command, cwd=folder, output=output.fileno(), errors=errors.fileno())
        try:
            while (code := process.returncode) is None:
                assert not (port and accepts(port)), "the port opened"
                assert time.monotonic() < deadline, "it serves"
                time.sleep(0.005)
            return code, copies.written(output), copies.written(errors)
        finally:
            process.kill()


def serving(port: int, store: str, *options: str) -> list[str]:
    """The command of the example, with a store."""
    return [sys.executable, str(REPORT_SERVER), "--port", str(port), "--store", store, *options]


# -- stores ------------------------------------------------------------------------------------------------------------


def no_database(path: Path) -> None:
    path.write_text("This is a letter to my aunt, and longer than the head of a database would be.\n" * 10)


def somebody_elses(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE photograph (taken_at)")


def ours(connection: sqlite3.Connection, version: int) -> None:
    """Mark a database as a task store."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA application_id = {int.from_bytes(b'PERD')}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("CREATE TABLE task (id)")


def of_a_newer_release(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        ours(connection, 4711)


def damaged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        ours(connection, 0)
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)
    path.write_bytes(content)


BAD_STORES: Final[dict[str, tuple[Callable[[Path], object], str]]] = {
    "no SQLite database": (no_database, "is no SQLite database: name another file, or move this one away"),
    "another program's": (somebody_elses, "another program's SQLite database: name a file of its own"),
    "newer schema": (of_a_newer_release, "has schema version 4711, and this Perdure knows versions up to"),
    "damaged": (damaged, "is damaged: restore it from a backup, or move it away"),
    "folder": (Path.mkdir, "is a folder: name a file in it"),
}


@pytest.mark.parametrize("bad", BAD_STORES)
def test_a_file_that_is_no_store_of_ours_is_refused_and_left_alone(bad: str, tmp_path: Path) -> None:
    make, reason = BAD_STORES[bad]
    path, port = tmp_path / "tasks.db", free_port()
    make(path)
    before = path.read_bytes() if path.is_file() else None
    line = refusal(tmp_path, *serving(port, f"sqlite:///{path}"), port=port)
    assert str(path) in line
    assert reason in line
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_store_in_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    port, path = free_port(), tmp_path / "nowhere" / "tasks.db"
    line = refusal(tmp_path, *serving(port, f"sqlite:///{path}"), port=port)
    assert f"the folder {path.parent} does not exist; create it first" in line


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_store_that_this_user_may_not_write_is_refused(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "tasks.db").touch()
    port = free_port()
    (folder / "tasks.db" if what == "file" else folder).chmod(0o500)
    try:
        line = refusal(tmp_path, *limited("unprivileged"), *serving(port, store_url(folder)), port=port)
    finally:
        folder.chmod(0o700)
    assert "permissions" in line or "this user may" in line


@pytest.mark.parametrize("there", [False, True], ids=["new", "existing"])
def test_a_store_on_a_full_disk_is_refused(there: bool, tmp_path: Path) -> None:
    port = free_port()
    with full_disk(tmp_path) as (folder, limits):
        if there:
            command = serving(0, store_url(folder), "--stdio")
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with filled(folder):
            line = refusal(tmp_path, *limits, *serving(port, store_url(folder)), port=port)
    assert "the disk is full; make room" in line


@pytest.mark.parametrize("url", ["mysql://there/tasks", "sqlite:///:memory:"])
def test_a_url_that_names_no_store_is_refused(url: str, tmp_path: Path) -> None:
    port = free_port()
    line = refusal(tmp_path, *serving(port, url), port=port)
    assert "write sqlite:///tasks.db" in line
    assert not list(tmp_path.iterdir())


def test_a_database_that_does_not_answer_is_refused_without_its_password(tmp_path: Path) -> None:
    port = free_port()
    line = refusal(tmp_path, *serving(port, "postgresql://ada:xyzzy@127.0.0.1:1/tasks"), port=port)
    assert line.startswith("postgresql://ada@127.0.0.1:1/tasks does not answer (")
    assert line.endswith("): start the server, or correct host and port")
    assert "xyzzy" not in line


def test_a_program_that_runs_itself_is_refused_in_one_line(tmp_path: Path) -> None:
    """`mcp.run`, without `perdure serve`."""
    port = free_port()
    no_database(tmp_path / "tasks.db")
    (tmp_path / "program.py").write_text(PROGRAM.format(store=store_url(tmp_path), port=port, host="127.0.0.1"))
    assert "is no SQLite database" in refusal(tmp_path, sys.executable, "program.py", port=port)


def test_a_server_that_somebody_wired_by_hand_is_refused_in_one_line(tmp_path: Path) -> None:
    """Over stdio too, where the SDK would start it without a look."""
    no_database(tmp_path / "tasks.db")
    (tmp_path / "own.py").write_text(OWN_SERVER.format(store=store_url(tmp_path)))
    assert "is no SQLite database" in refusal(tmp_path, PERDURE, "serve", "own:mcp", "--stdio")


TWO_SERVERS: Final = """\
from perdure import Tasks, serve
{imported}
tasks = Tasks("sqlite:///tasks.db")
serve(tasks.server("mine"), ["--stdio", "--store", "sqlite:///mine.db"])
"""


def test_only_the_server_that_is_served_gets_its_options_and_its_store_looked_at(tmp_path: Path) -> None:
    """Others in the process are left alone, however broken their stores are."""
    no_database(tmp_path / "other.db")
    for imported in ('other = Tasks("sqlite:///other.db")', 'other = Tasks("sqlite:///other.db").server("other")'):
        (tmp_path / "program.py").write_text(TWO_SERVERS.format(imported=imported))
        code, _, said = ended(tmp_path, sys.executable, "program.py", port=0)
        (line,) = said.splitlines()
        assert (code, line.partition(": ")[2]) == (0, "what is in tasks is stored in the clear")
    assert {path.name for path in tmp_path.glob("*.db")} == {"mine.db", "other.db"}


def test_a_store_for_a_server_without_tasks_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text('from mcp.server import MCPServer\nmcp = MCPServer("plain")\n')
    line = refusal(tmp_path, PERDURE, "serve", "plain:mcp", "--store", store_url(tmp_path))
    assert line == "--store, or PERDURE_STORE, needs a server with a Tasks, and this one has none"


# -- hosts and ports ---------------------------------------------------------------------------------------------------


def test_a_server_without_authentication_is_not_opened_to_the_network_by_mistake(tmp_path: Path) -> None:
    port = free_port()
    line = refusal(tmp_path, *serving(port, store_url(tmp_path), "--host", "0.0.0.0"), port=port)
    assert "say --allow-anonymous" in line
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_nor_does_a_program_that_runs_itself_open_one(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "program.py").write_text(PROGRAM.format(store=store_url(tmp_path), port=port, host="0.0.0.0"))
    line = refusal(tmp_path, sys.executable, "program.py", port=port)
    assert "small has no authentication, so anybody who reaches 0.0.0.0 could call it" in line
    assert "say Tasks(…, allow_anonymous=True)" in line
    assert not (tmp_path / "tasks.db").exists()


@pytest.mark.parametrize("own", [False, True], ids=["perdure serve", "mcp.run"])
def test_what_the_program_allows_is_allowed(own: bool, tmp_path: Path) -> None:
    """Shown by the next thing that is wrong: the host is nobody's, an address that is for documentation."""
    host = "198.51.100.77"
    source = PROGRAM.format(store=store_url(tmp_path), port=8000, host=host)
    (tmp_path / "program.py").write_text(source.replace("Tasks('", "Tasks(allow_anonymous=True, store='"))
    command = [sys.executable, "program.py"] if own else [PERDURE, "serve", "program:mcp", "--host", host]
    assert refusal(tmp_path, *command).startswith(f"can't listen on {host}, port 8000: ")


@pytest.mark.parametrize("way", ["perdure serve", "perdure.serve", "mcp.run"])
async def test_who_starts_a_server_without_authentication_is_told_what_protects_its_tasks(
    way: str, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "program.py").write_text(PROGRAM.format(store=store_url(tmp_path), port=port, host="127.0.0.1"))
    commands = {
        "perdure serve": [PERDURE, "serve", "program:mcp", "--port", str(port)],
        "perdure.serve": serving(port, store_url(tmp_path)),
        "mcp.run": [sys.executable, "program.py"],
    }
    command = commands[way]
    async with copies.talking(command, cwd=tmp_path) as process, asyncio.timeout(PATIENCE):
        assert process.stderr is not None
        line = await process.stderr.readline()
    assert line == b"perdure: no authentication: whoever knows a task's id may read it\n"


def test_who_starts_a_server_that_takes_a_gateways_word_is_told_that_this_is_all(tmp_path: Path) -> None:
    command = [sys.executable, str(REPORT_SERVER.with_name("behind.py")), "--port", str(free_port())]
    environment = os.environ | {"SUMS_SECRET": "s" * 32}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if line.startswith("perdure: serving"):
                    break
        finally:
            process.kill()
    assert lines[-1].startswith("perdure: serving"), lines
    said = [line for line in lines if "no authentication" in line]
    assert said == ["perdure: no authentication but by identify=, which alone says whose a task is\n"]


@pytest.mark.parametrize("own", [False, True], ids=["perdure serve", "mcp.run"])
async def test_a_server_that_may_be_one_of_several_says_that_its_key_is_its_own(
    own: bool, database: str, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "program.py").write_text(PROGRAM.format(store=database, port=port, host="127.0.0.1"))
    command = [sys.executable, "program.py"] if own else [PERDURE, "serve", "program:mcp", "--port", str(port)]
    async with copies.talking(command, cwd=tmp_path) as process, asyncio.timeout(PATIENCE):
        assert process.stderr is not None
        # What the SDK's own log makes of it is broken into lines.
        while b"the key for requestState is" not in (line := await process.stderr.readline()):
            assert line, "it says no such thing"


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "program.py").write_text(PROGRAM.format(store=store_url(tmp_path), port=port, host="127.0.0.1"))
        for command in (serving(port, store_url(tmp_path)), [sys.executable, "program.py"]):
            line = refusal(tmp_path, *command)
            assert line == f"can't listen on 127.0.0.1, port {port}: address already in use; choose another"


def test_a_host_that_is_not_here_is_refused(tmp_path: Path) -> None:
    port = free_port()
    elsewhere = ["--host", "198.51.100.77", "--allow-anonymous"]  # an address of nobody's, for documentation
    line = refusal(tmp_path, *serving(port, store_url(tmp_path), *elsewhere), port=port)
    assert line.startswith(f"can't listen on 198.51.100.77, port {port}: ")


# -- programs ----------------------------------------------------------------------------------------------------------

MISTAKES: Final = {
    "nowhere:mcp": "there is no module 'nowhere' here",
    "nowhere.py:mcp": "there is no file nowhere.py",
    "json:mcp": "json has no 'mcp'",
    "json:dumps": "json:dumps is a function, not an MCPServer",
}


@pytest.mark.parametrize("target", MISTAKES)
def test_a_target_that_names_no_server_is_a_usage_error(target: str, tmp_path: Path) -> None:
    port = free_port()
    wrong = usage_error(tmp_path, PERDURE, "serve", target, "--port", str(port), port=port)
    assert wrong == f"Invalid value for MODULE:APP: {MISTAKES[target]}"


BROKEN: Final = {
    "def f(:\n": "SyntaxError: invalid syntax (server.py, line 1)",
    "\nraise RuntimeError('one\\ntwo')\n": "RuntimeError: one two ({folder}/server.py, line 2)",
}


@pytest.mark.parametrize("source", BROKEN)
def test_a_module_that_can_not_be_loaded_is_refused_in_one_line(source: str, tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "server.py").write_text(source)
    line = refusal(tmp_path, PERDURE, "serve", "server:mcp", "--port", str(port), port=port)
    assert line == "server can't be loaded: " + BROKEN[source].format(folder=tmp_path)


def test_what_a_module_asks_of_perdure_in_vain_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(OWN_SERVER.format(store="tasks.db"))
    line = refusal(tmp_path, PERDURE, "serve", "server.py:mcp")
    assert line == "'tasks.db' names no store: write sqlite:///tasks.db, or postgresql://user@host/database"


def test_a_server_whose_lifespan_fails_has_failed(tmp_path: Path) -> None:
    """Here: the program's own."""
    (tmp_path / "own.py").write_text(FAILING_SERVER.format(store=store_url(tmp_path)))
    status, _, complaints = ended(tmp_path, PERDURE, "serve", "own:mcp", "--port", "0", port=0)
    assert status == 3, "as uvicorn has it"
    assert "RuntimeError: no database" in complaints
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ERROR uvicorn\.error: ", complaints, re.MULTILINE)


LACKING: Final = {
    "middleware=[tasks.middleware], ": "pass middleware=[tasks.middleware] to MCPServer",
    ", lifespan=tasks.lifespan": "pass lifespan=tasks.lifespan to MCPServer",
    "extensions=[tasks], ": "pass extensions=[tasks] to MCPServer",
    ", middleware=[tasks.middleware], lifespan=tasks.lifespan": "pass middleware=[tasks.middleware] to MCPServer",
}


@pytest.mark.parametrize("part", LACKING)
def test_a_server_that_lacks_a_part_of_its_tasks_is_refused(part: str, tmp_path: Path) -> None:
    """Also for `--store`, which such a server seems to have no use for."""
    source = OWN_SERVER.format(store=store_url(tmp_path))
    options = ("--store", "sqlite:///other.db") if part.startswith("middleware") else ()
    assert part in source
    (tmp_path / "own.py").write_text(source.replace(part, ""))
    line = refusal(tmp_path, PERDURE, "serve", "own:mcp", "--port", str(port := free_port()), *options, port=port)
    assert f"{LACKING[part]}, or make the server by tasks.server(name)" in line
    assert not list(tmp_path.glob("*.db"))


# -- what a child is not to have ---------------------------------------------------------------------------------------


LIMITS: Final = {
    # Root writes where it likes, but not without CAP_DAC_OVERRIDE (1), which PR_CAPBSET_DROP (24) takes away.
    "unprivileged": "import ctypes; ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)",
    "small files": "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))",
}


def limited(how: str) -> list[str]:
    """What comes before a command, to run it under a limit."""
    return [sys.executable, "-c", f"import os, sys; {LIMITS[how]}; os.execv(sys.argv[1], sys.argv[1:])"]


@contextmanager
def full_disk(tmp_path: Path) -> Generator[tuple[Path, list[str]]]:
    """A folder whose disk can be filled, and what has to come before a command that is to find it full.

    A small file system of its own where this user may mount one; elsewhere no file may grow, which comes nearest to it.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode == 0
    try:
        yield folder, [] if mounted else limited("small files")
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Generator[None]:
    """Nothing more fits onto the disk of `folder`, if it is a small one."""
    if folder.is_mount():
        with (folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
    yield
