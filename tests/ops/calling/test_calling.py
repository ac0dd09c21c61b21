"""The commands as scripts run them: without a terminal, by exit codes and JSON. Real programs, and a server."""

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from perdure import TaskContext, Tasks
from perdure.ops.calling import book, desk, text
from tests.acceptance.support import REPORT_SERVER
from tests.client.spy import Spy, always
from tests.ops.calling import letters
from tests.ops.calling.terminal import PERDURE, piped
from tests.support import eventually
from tests.wire.support import Stage, serving, stage
from tests.wire.tools import Form, Tools

JSON = Any
EVIL = "a\x1b[2J\x1b]0;owned\x07b\x9b31m"


@dataclass(frozen=True)
class Shell:
    """Runs commands with a journal of their own, against one server."""

    scene: Stage
    folder: Path
    spy: Spy

    async def __call__(self, *words: str, code: int = 0, input: str = "", **env: str) -> tuple[str, str]:
        surroundings = {"XDG_STATE_HOME": str(self.folder), **env}
        output, errors = await piped(*PERDURE, *words, env=surroundings, code=code, input=input)
        assert "\x1b" not in output + errors
        return output, errors

    async def call(self, *words: str, code: int = 0, **env: str) -> tuple[str, str]:
        return await self("call", self.scene.client.url, *words, code=code, **env)

    async def document(self, *words: str, code: int = 0) -> JSON:
        return json.loads((await self(*words, "--json", code=code))[0])

    async def detached(self, *words: str) -> str:
        return (await self.call(*words, "--detach"))[0].strip()


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
async def shell(tmp_path: Path, tools: Tools) -> AsyncGenerator[Shell]:
    async def evil(task: TaskContext) -> str:
        await task.report(EVIL)
        await task.elicit("form", EVIL, Form)
        return EVIL

    async def fails() -> str:
        raise MCPError(-31999, EVIL)

    def declare(tasks: Tasks) -> None:
        tools.declare(tasks)
        tasks.tool()(evil)
        tasks.tool()(fails)
        letters.declare(tasks)

    spy = Spy()
    async with stage(tmp_path, declare, server={"middleware": [spy]}) as up:
        yield Shell(up, tmp_path, spy)


async def test_the_result_is_on_standard_output_and_nothing_else(shell: Shell) -> None:
    output, errors = await shell.call("hello", "name=Ada")
    assert output == "Hello, Ada!\n"
    lines = errors.splitlines()
    assert lines[0].startswith("hello  tsk_")
    assert lines[-1].endswith("completed")


async def test_a_letter_that_the_locale_does_not_have_loses_no_result(shell: Shell) -> None:
    assert (await shell.call("hello", "name=漢", PYTHONIOENCODING="latin-1"))[0] == "Hello, ?!\n"


async def test_json_is_one_document(shell: Shell) -> None:
    found = await shell.document("call", shell.scene.client.url, "report", "size=large")
    assert found["task"].startswith("tsk_")
    assert (found["tool"], found["status"]) == ("report", "completed")
    assert found["result"]["structuredContent"] == {"size": "large", "pages": 7}


@pytest.mark.slow
async def test_what_does_not_fit_is_told_and_nothing_is_called(shell: Shell, tools: Tools) -> None:
    for words, reason in (
        (["hello", "nome=Ada"], "nome: the tool has no such argument; did you mean name?"),
        (["hello"], "name: it is needed"),
        (["goodbye"], "the server has no tool 'goodbye'; there are: hello, report,"),
        (["a=1"], "say which tool: hello,"),
    ):
        assert reason in (await shell.call(*words, code=2))[1]
    assert tools.ran == []
    assert shell.spy.came["tools/call"] == 0


async def test_arguments_come_from_standard_input_too(shell: Shell) -> None:
    url = shell.scene.client.url
    output, _ = await shell("call", url, "hello", "--arguments", "-", input='{"name": "Ada"}')
    assert output == "Hello, Ada!\n"


async def test_what_failed_exits_with_1(shell: Shell) -> None:
    url = shell.scene.client.url
    found = await shell.document("call", url, "fails", code=1)
    assert (found["status"], found["error"]["code"]) == ("failed", -31999)
    found = await shell.document("call", url, "refuse", "reason=no", code=1)
    assert (found["status"], found["result"]["isError"]) == ("completed", True)


@pytest.mark.slow
async def test_a_servers_text_is_text_in_every_place(shell: Shell) -> None:
    """`Shell` looks for the character that begins commands."""
    _, errors = await shell.call("evil", "--questions", "leave", code=4)
    assert errors.count("owned") == 2, "as a message and as a question"
    task = (await shell.document("ls"))[0]["task"]
    await shell("answer", task, "--decline")
    output, _ = await shell("resume", task)
    assert "owned" in output
    output, _ = await shell("resume", task, "--json")
    assert json.loads(output)["result"]["content"][0]["text"] == EVIL
    _, errors = await shell.call("fails", code=1)
    assert "owned" in errors


@pytest.mark.slow
async def test_a_task_is_left_listed_watched_and_resumed(shell: Shell, tools: Tools) -> None:
    task = await shell.detached("gated")
    assert task.startswith("tsk_")
    (entry,) = await shell.document("ls")
    assert entry["task"] == task
    assert (entry["tool"], entry["status"], entry["server"]) == ("gated", "open", shell.scene.client.url)
    found = await shell.document("resume", task[:12], "--timeout", "1s", code=4)
    assert (found["task"], found["status"]) == (task, "running")
    other = await shell.detached("gated")
    tools.gate.set()
    both = await shell.document("watch", task, other)
    assert [each["task"] for each in both] == [task, other]
    assert [each["status"] for each in both] == ["completed"] * 2
    output, _ = await shell("ls")
    assert output.splitlines()[0].split() == ["ID", "TOOL", "STATUS", "AGE", "SERVER"]
    assert [line.split()[2] for line in output.splitlines()[1:]] == ["completed"] * 2
    assert (await shell("resume", task))[0] == "through\n", "a result is there as long as the server has it"


async def test_a_task_is_cancelled_from_elsewhere(shell: Shell) -> None:
    task = await shell.detached("gated")
    _, errors = await shell("cancel", task[:10])
    assert errors == f"perdure: {task} is asked to stop\n"
    found = await shell.document("resume", task, code=3)
    assert found["status"] == "cancelled"


async def test_one_key_is_one_call(shell: Shell, tools: Tools) -> None:
    both = [await shell.detached("gated", "--idempotency-key", "mine") for _ in range(2)]
    assert both[0] == both[1]
    assert tools.ran == ["gated"]
    tools.gate.set()


@pytest.mark.slow
async def test_a_question_is_told_with_how_to_answer_it_and_waited_for(shell: Shell) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(shell.call("ask", "--idempotency-key", "mine"))
        task = await asked(shell)
        for words, reason in (
            ((task,), "say what to answer:"),
            ((task, "ok=perhaps"), "ok: it must be yes or no"),
            ((task, "yes=ok"), "has no field 'yes'; there are: ok"),
            ((task, "--decline", "--question", "x"), "say which question"),
        ):
            assert reason in (await shell("answer", *words, code=2))[1]
        _, errors = await shell("answer", task, "ok=yes")
        assert errors == f"perdure: {task} has its answer\n"
    output, errors = waiting.result()
    assert output
    assert f"  perdure answer {task} ok=…\n  perdure answer {task} --decline\n" in errors
    assert "asks nothing" in (await shell("answer", task, "ok=yes", code=2))[1]


async def asked(shell: Shell) -> str:
    """The task that `call` waits for, once it asks."""
    await eventually(lambda: any(status == "input_required" for _, status in tasks_of(shell)), "it asks")
    return next(task for task, status in tasks_of(shell) if status == "input_required")


def tasks_of(shell: Shell) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(f"file:{shell.scene.database}?mode=ro", uri=True)) as connection:
        return connection.execute("SELECT id, status FROM task").fetchall()


@pytest.mark.slow
async def test_a_script_may_leave_at_a_question(shell: Shell) -> None:
    found = await shell.document("call", shell.scene.client.url, "ask_two", "--questions", "leave", code=4)
    assert found["message"] == "The task waits for an answer"
    task = found["task"]
    _, errors = await shell("answer", task, code=2)
    keys = [line.split()[3].partition(".")[0] for line in errors.splitlines() if "=…" in line]
    assert len(keys) == 2
    await shell("answer", task, "--decline", "--question", keys[0])
    await shell("answer", task, "--cancel")
    assert (await shell.document("watch", task))[0]["status"] == "completed"


async def test_a_server_that_is_not_there_exits_with_5(shell: Shell) -> None:
    nowhere = "http://127.0.0.1:9/mcp"
    found = await shell.document("call", nowhere, "hello", "name=Ada", code=5)
    assert found["status"] == "unavailable"
    _, errors = await shell("resume", "tsk_none", "--server", shell.scene.client.url, code=5)
    assert "perdure: The server does not know the task, or takes this client for somebody else" in errors
    (only,) = await shell.document("ls")
    assert only["task"] == "tsk_none", "what was never called is not on record"


async def test_a_refusal_of_the_server_exits_with_1(shell: Shell) -> None:
    shell.spy.refuse["tools/call"] = always(-32603, EVIL)
    found = await shell.document("call", shell.scene.client.url, "hello", "name=Ada", code=1)
    assert (found["status"], found["error"]["code"]) == ("refused", -32603)
    assert await shell.document("ls") == []


async def test_a_server_without_tasks_answers_at_once(tmp_path: Path) -> None:
    mcp = MCPServer("plain")

    @mcp.tool()
    def add(a: int, b: int) -> int:
        return a + b

    env = {"XDG_STATE_HOME": str(tmp_path), "HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    async with serving(mcp) as (_, url):
        assert (await piped(*PERDURE, "call", url, "add", "a=1", "b=2", "--detach", env=env))[0] == "3\n"
        output, _ = await piped(*PERDURE, "call", url, "add", "a=1", "b=2", "--json", env=env)
        found = json.loads(output)
        assert (found["task"], found["result"]["structuredContent"]) == (None, {"result": 3})
        assert (await piped(*PERDURE, "ls", env=env))[0] == "No calls.\n"


async def test_nobody_can_be_asked_without_a_terminal(shell: Shell, tools: Tools) -> None:
    reason = "there is no terminal to ask at"
    assert reason in (await shell.call("ask", "--questions", "ask", code=2))[1]
    assert tools.ran == []


async def test_what_is_asked_before_there_is_a_task_needs_a_terminal(shell: Shell) -> None:
    _, errors = await shell.call("send_letters", code=1)
    assert errors == ("perdure: The tool asks before it begins, and only a person at a terminal can answer: To whom?\n")
    assert await shell.document("ls") == []


async def test_an_answer_that_makes_no_sense_is_told_in_a_line(shell: Shell) -> None:
    shell.spy.change["tools/list"] = lambda _: {"tools": EVIL}
    _, errors = await shell.call("hello", "name=Ada", code=5)
    assert errors == "perdure: The server's answer is not what the protocol has\n"


def test_what_nobody_thought_of_is_shown_in_full_and_paints_nothing() -> None:
    try:
        raise LookupError(EVIL)
    except LookupError as error:
        outcome = desk.unforeseen(error)
    assert "test_what_nobody_thought_of" in outcome.words
    assert text.block(outcome.words).endswith("LookupError: a\ufffd[2J\ufffd]0;owned\ufffdb\ufffd31m\n")


async def test_the_tools_of_a_server_are_listed(shell: Shell) -> None:
    output, _ = await shell("tools", shell.scene.client.url)
    assert output.startswith("hello  Greet.\n  name  string, needed\n")
    found = await shell.document("tools", shell.scene.client.url)
    assert found[0]["inputSchema"]["required"] == ["name"]


async def test_a_token_is_sent_and_is_in_nobodys_sight(shell: Shell, tools: Tools) -> None:
    """Not in the arguments of the process, nor in what it says, nor in the journal."""
    script = f"import sys; sys.argv = ['perdure', 'call', {shell.scene.client.url!r}, 'gated']; {PERDURE[2]}"
    environment = {**os.environ, "XDG_STATE_HOME": str(shell.folder), "PERDURE_TOKEN": "hush-hush"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env=environment, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        await asyncio.wait_for(tools.entered.wait(), 30)
        seen = await anyio.Path(f"/proc/{process.pid}/cmdline").read_bytes()
        tools.gate.set()
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    journal = b"".join(each.read_bytes() for each in (shell.folder / "perdure").iterdir())
    assert b"hush-hush" not in seen + output + errors + journal
    assert output == b"through\n"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_server_is_started_by_its_command_and_started_again_to_resume(tmp_path: Path) -> None:
    folder = tmp_path / "my folder"
    folder.mkdir()
    env = {"XDG_STATE_HOME": str(tmp_path), "PERDURE_TOKEN": "hush-hush"}
    server = ("--", sys.executable, str(REPORT_SERVER), "--stdio", "--store", "sqlite:///tasks.db")
    words = ("generate_report", "size=large", "--questions", "leave", "--json")
    output, _ = await piped(*PERDURE, "call", *words, *server, env=env, code=4, cwd=folder)
    task = json.loads(output)["task"]
    await piped(*PERDURE, "answer", task[:9], "approved=yes", env=env, cwd=tmp_path)
    output, _ = await piped(*PERDURE, "resume", env=env, cwd=tmp_path)
    assert json.loads(output) == {"size": "large", "approved": True}
    output, _ = await piped(*PERDURE, "ls", env=env)
    assert f"{REPORT_SERVER} --stdio --store sqlite:///tasks.db (in {folder})" in output


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["/no/such/program"], 2, "/no/such/program (in "),
        ([sys.executable, "-c", "import sys; sys.exit('\x1b[2Jno')"], 5, "\n  [2Jno\n"),
    ],
)
async def test_a_command_that_is_no_server_is_told_with_what_it_said(
    tmp_path: Path, command: list[str], code: int, said: str
) -> None:
    _, errors = await piped(*PERDURE, "tools", "--", *command, env={"XDG_STATE_HOME": str(tmp_path)}, code=code)
    assert said in errors
    assert "\x1b" not in errors


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
async def test_completion_has_a_script_for_each_shell(shell_name: str, tmp_path: Path) -> None:
    script, _ = await piped(*PERDURE, "completion", shell_name, env={"XDG_STATE_HOME": str(tmp_path)})
    assert "_PERDURE_COMPLETE" in script
    assert list(os.scandir(tmp_path)) == []


async def test_bash_completes_commands_options_and_ids(tmp_path: Path) -> None:
    journal = book.opened(str(tmp_path / "j.db"))
    journal.adopt("http://127.0.0.1:1/mcp", "tool", "tsk_abc")
    journal.close()
    program = tmp_path / "perdure"
    program.write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "{PERDURE[2]}" "$@"\n')
    program.chmod(0o700)
    script, _ = await piped(*PERDURE, "completion", "bash")
    words_to_complete = "COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))"
    ask = f'{script}\n{words_to_complete}\n_perdure_completion perdure\necho "${{COMPREPLY[@]}}"'
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PERDURE_JOURNAL": str(tmp_path / "j.db")}
    for words, wanted in (
        ("perdure res", "resume"),
        ("perdure resume tsk_", "tsk_abc"),
        ("perdure call --det", "--detach"),
    ):
        output, _ = await piped("bash", "-c", ask, "bash", words, env=env)
        assert output.split() == [wanted]
