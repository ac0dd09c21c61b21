"""What no worker can be made of is refused in one line that says what to do, before anything is begun."""

import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from perdure.ops.cli import main

APP: Final = """\
from contextlib import asynccontextmanager
from mcp.server.mcpserver import MCPServer
from perdure import Tasks
tasks = Tasks("sqlite:///{folder}/tasks.db")

@tasks.tool()
async def report() -> None: ...

@asynccontextmanager
async def lifespan(server):
    {entered}:
        yield

mcp = MCPServer("own", extensions=[tasks], middleware=[tasks.middleware]{lifespan})
"""
ENTERED: Final = "async with tasks.lifespan(server)"


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is loaded comes first on the path, which here is no program's."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def worked(folder: Path, source: str, *options: str, command: str = "worker") -> Result:
    program = folder / f"{folder.name}.py"
    program.write_text(source)
    return CliRunner().invoke(main, [command, f"{program}:mcp", *options])


def refusal(folder: Path, source: str, *options: str, command: str = "worker") -> str:
    """The one line of ours, without its `perdure: `."""
    done = worked(folder, source, *options, command=command)
    assert done.exit_code == 1, done.output
    (line,) = done.output.splitlines()
    assert line.startswith("perdure: ")
    return line.removeprefix("perdure: ")


def app(folder: object, *, entered: str = ENTERED, lifespan: str = ", lifespan=lifespan") -> str:
    return APP.format(folder=folder, entered=entered, lifespan=lifespan)


def test_a_server_without_tasks_is_no_workers_app(tmp_path: Path) -> None:
    line = refusal(tmp_path, 'from mcp.server import MCPServer\nmcp = MCPServer("plain")\n')
    assert line.startswith("a worker needs a server with a Tasks, and this one has none: make it by tasks.server(name)")


def test_nor_is_one_without_task_tools(tmp_path: Path) -> None:
    line = refusal(tmp_path, app(tmp_path).replace("@tasks.tool()", ""))
    assert line == "own has no task tools to run: declare one with @tasks.tool()"
    assert not (tmp_path / "tasks.db").exists()


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_queue_that_no_tool_belongs_to_is_refused(command: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, app(tmp_path), "--queue", "default", "--queue", "quick", command=command)
    assert line == "no tool belongs to the queue 'quick': there is default"


def test_a_store_that_can_not_be_used_is_refused(tmp_path: Path) -> None:
    source = app(nowhere := tmp_path / "nowhere")
    assert f"the folder {nowhere} does not exist; create it first" in refusal(tmp_path, source)
    line = refusal(tmp_path, source, "--store", "mysql://me:secret@there/tasks")
    assert line == "'mysql://there/tasks' names no store: write sqlite:///tasks.db, or postgresql://user@host/database"


@pytest.mark.parametrize("lacking", [{"lifespan": ""}, {"entered": "if True"}], ids=["no lifespan", "another one"])
def test_a_server_that_lacks_the_lifespan_of_its_tasks_is_refused(lacking: dict[str, str], tmp_path: Path) -> None:
    line = refusal(tmp_path, app(tmp_path, **lacking))
    assert line.endswith("pass lifespan=tasks.lifespan to MCPServer, or make the server by tasks.server(name)")


@pytest.mark.parametrize("option", ["--store sqlite:///t.db", "--concurrency 2", "--queue default"])
def test_a_server_without_tasks_has_no_use_for_options_of_tasks(option: str, tmp_path: Path) -> None:
    source = 'from mcp.server import MCPServer\nmcp = MCPServer("plain")\n'
    line = refusal(tmp_path, source, *option.split(), command="serve")
    said = {"--store": "--store, or PERDURE_STORE,"}.get(name := option.split()[0], name)
    assert line == f"{said} needs a server with a Tasks, and this one has none"


@pytest.mark.parametrize("part", ["extensions=[tasks], ", "middleware=[tasks.middleware]"])
def test_a_server_that_lacks_another_part_of_its_tasks_is_refused(part: str, tmp_path: Path) -> None:
    source = app(tmp_path, lifespan=", lifespan=lifespan").replace(part, "").replace("[tasks], ,", "[tasks],")
    assert f"pass {part.removesuffix(', ')} to MCPServer" in refusal(tmp_path, source)


@pytest.mark.parametrize("queue", ["", "=1", "slow=", "slow=0", "slow=two", "slow=-1"])
def test_a_queue_that_is_none_is_a_usage_error(queue: str, tmp_path: Path) -> None:
    done = worked(tmp_path, app(tmp_path), "--queue", queue)
    assert done.exit_code == 2
    assert f"Invalid value for --queue: write NAME or NAME=N, with N at least 1, not {queue!r}" in done.output


def test_a_queue_is_named_once(tmp_path: Path) -> None:
    done = worked(tmp_path, app(tmp_path), "--queue", "slow", "--queue", "slow=2")
    assert "Invalid value for --queue: 'slow' is there twice" in done.output
