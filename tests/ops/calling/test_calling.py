"""The commands as scripts run them: without a terminal, by exit codes and JSON."""

import errno
import io
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

from perdure import TaskContext, Tasks
from perdure.ops import text
from perdure.ops.calling import desk
from perdure.ops.cli import main
from tests.acceptance.support import REPORT_SERVER
from tests.client.spy import always
from tests.ops.calling import letters
from tests.ops.calling.shell import UNSET, Shell, run, shell_of
from tests.wire.support import serving
from tests.wire.tools import Form

LOST = (
    "perdure: The server does not know the task, or not as one of yours: "
    "is PERDURE_TOKEN the token with which it was called?\n"
)
EVIL = "a\x1b[2J\x1b]0;owned\x07b\x9b31m"


async def evil(task: TaskContext) -> str:
    await task.report(EVIL)
    await task.elicit("form", EVIL, Form)
    return EVIL


async def fails() -> str:
    raise MCPError(-31999, EVIL)


def declare(tasks: Tasks) -> None:
    tasks.tool()(evil)
    tasks.tool()(fails)
    letters.declare(tasks)


class Full(io.StringIO):
    """What is written to a disk that is full."""

    def write(self, text: str, /) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def plain_tool(shell: Shell) -> list[str]:
    """Have the server offer `charge`, of which it makes no tasks; what ran."""
    ran: list[str] = []

    @shell.scene.mcp.tool()
    def charge() -> str:
        ran.append("charge")
        return "charged"

    return ran


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    with shell_of(tmp_path, declare) as up:
        yield up


def test_json_is_one_document(shell: Shell) -> None:
    found = shell.document("call", shell.url, "report", "size=large")
    assert found["task"].startswith("tsk_")
    assert (found["tool"], found["status"]) == ("report", "completed")
    assert found["result"]["structuredContent"] == {"size": "large", "pages": 7}


@pytest.mark.slow
def test_what_does_not_fit_is_told_and_nothing_is_called(shell: Shell) -> None:
    for words, reason in (
        (["hello", "nome=Ada"], "nome: the tool has no such argument; did you mean name?"),
        (["hello"], "name: it is needed"),
        (["goodbye"], "the server has no tool 'goodbye'; there are: hello, report,"),
        (["a=1"], "say which tool: hello,"),
    ):
        assert reason in (shell.call(*words, code=2))[1]
    assert shell.tools.ran == []
    assert shell.spy.came["tools/call"] == 0


def test_arguments_come_from_standard_input_too(shell: Shell) -> None:
    url = shell.url
    output, _ = shell("call", url, "hello", "--arguments", "-", input='{"name": "Ada"}')
    assert output == "Hello, Ada!\n"


def test_what_failed_exits_with_1(shell: Shell) -> None:
    url = shell.url
    found = shell.document("call", url, "fails", code=1)
    assert (found["status"], found["error"]["code"]) == ("failed", -31999)
    found = shell.document("call", url, "refuse", "reason=no", code=1)
    assert (found["status"], found["result"]["isError"]) == ("completed", True)


@pytest.mark.slow
def test_a_servers_text_is_text_in_every_place(shell: Shell) -> None:
    """`Shell` looks for the character that begins commands."""
    _, errors = shell.call("evil", "--questions", "leave", code=4)
    *lines, question = [line for line in errors.splitlines() if "owned" in line]
    assert question.startswith("? ")
    # Whether it is seen while it still works is chance.
    assert [line.split()[2] for line in lines] in (["input_required"], ["working", "input_required"])
    task = (shell.document("ls"))[0]["task"]
    shell("answer", task, "--decline")
    output, _ = shell("resume", task)
    assert "owned" in output
    output, _ = shell("resume", task, "--json")
    assert json.loads(output)["result"]["content"][0]["text"] == EVIL
    _, errors = shell.call("fails", code=1)
    assert "owned" in errors


@pytest.mark.slow
def test_a_task_is_left_listed_watched_and_resumed(shell: Shell) -> None:
    task = shell.detached("gated")
    assert task.startswith("tsk_")
    (entry,) = shell.document("ls")
    assert entry["task"] == task
    assert (entry["tool"], entry["status"], entry["server"]) == ("gated", "open", shell.url)
    found = shell.document("resume", task[:12], "--timeout", "3s", code=4)
    assert (found["task"], found["status"]) == (task, "working")
    other = shell.detached("gated")
    shell.open_gate()
    both = shell.document("watch", task, other)
    assert [each["task"] for each in both] == [task, other]
    assert [each["status"] for each in both] == ["completed"] * 2
    output, _ = shell("ls")
    assert output.splitlines()[0].split() == ["ID", "TOOL", "STATUS", "AGE", "SERVER"]
    assert [line.split()[2] for line in output.splitlines()[1:]] == ["completed"] * 2
    assert (shell("resume", task))[0] == "through\n", "a result is there as long as the server has it"


def test_a_task_is_cancelled_from_elsewhere(shell: Shell) -> None:
    task = shell.detached("gated")
    _, errors = shell("cancel", task[:10])
    assert errors == f"perdure: {task} is asked to stop\n"
    found = shell.document("resume", task, code=3)
    assert found["status"] == "cancelled"


def test_a_key_whose_task_is_no_more_is_told_with_what_frees_it(shell: Shell) -> None:
    task = shell.detached("hello", "name=Ada", "--idempotency-key", "mine")
    shell.spy.refuse["tasks/get"] = always(-32602, "no such task")
    found = shell.document("call", shell.url, "hello", "name=Ada", "--idempotency-key", "mine", code=5)
    assert (found["task"], found["status"]) == (task, "lost")
    assert found["message"].endswith(". perdure forget mine frees the key for another call")


def test_one_key_is_one_call(shell: Shell) -> None:
    both = [shell.detached("gated", "--idempotency-key", "mine") for _ in range(2)]
    assert both[0] == both[1]
    assert shell.tools.ran == ["gated"]
    shell.open_gate()


def test_a_key_of_another_call_is_refused(shell: Shell) -> None:
    shell.call("hello", "name=Ada", "--idempotency-key", "mine")
    found = shell.document("call", shell.url, "hello", "name=Bob", "--idempotency-key", "mine", code=1)
    assert (found["status"], found["task"]) == ("refused", None)
    assert "The key 'mine' is that of another call" in found["message"]
    assert shell.tools.ran == ["hello"]


def test_a_key_for_a_tool_that_honours_none_is_refused_and_nothing_is_called(shell: Shell) -> None:
    ran = plain_tool(shell)
    _, errors = shell.call("charge", "--idempotency-key", "mine", code=2)
    assert "--idempotency-key: the server does not say that charge knows calls again by a key" in errors
    assert ran == []
    assert shell.document("ls") == []


def test_a_call_that_must_not_be_made_again_is_told_with_what_ends_it(shell: Shell) -> None:
    ran = plain_tool(shell)
    shell.broken_off("charge", "mine")
    found = shell.document("resume", code=5)
    assert (found["status"], found["task"], found["key"]) == ("unsure", None, "mine")
    assert found["message"].endswith(". perdure forget mine strikes it off the list, once you know")
    _, errors = shell("cancel", "mine", code=2)
    assert "perdure resume mine sees to that, or perdure forget mine strikes it off the list" in errors
    shell("forget", "mine")
    assert (ran, shell.document("ls")) == ([], [])


@pytest.mark.slow
def test_a_script_may_leave_at_a_question(shell: Shell) -> None:
    found = shell.document("call", shell.url, "ask_two", "--questions", "leave", code=4)
    assert (found["status"], found["message"]) == ("input_required", "The task waits for an answer")
    asked = {each["message"]: [field["name"] for field in each["fields"]] for each in found["questions"]}
    assert asked == {"All right?": ["ok"], "Who?": ["name"]}
    task = found["task"]
    _, errors = shell("answer", task, "--accept", "--question", found["questions"][0]["key"], code=2)
    assert "needs" in errors
    assert "as well" in errors
    _, errors = shell("answer", task, code=2)
    assert "? All right?" in errors
    assert "? Who?" in errors
    _, errors = shell("answer", task, "--question", "form", code=2)
    assert "? All right?" in errors
    assert "? Who?" not in errors
    _, errors = shell("answer", task, code=2)
    keys = [line.split()[3].partition(".")[0] for line in errors.splitlines() if "=…" in line]
    assert len(keys) == 2
    shell("answer", task, "--decline", "--question", keys[0])
    shell("answer", task, "--cancel")
    assert (shell.document("watch", task))[0]["status"] == "completed"


def test_a_server_that_is_not_there_exits_with_5(shell: Shell) -> None:
    nowhere = "http://127.0.0.1:9/mcp"
    found = shell.document("call", nowhere, "hello", "name=Ada", code=5)
    assert found["status"] == "unavailable"
    assert LOST in shell("resume", "tsk_none", "--server", shell.url, code=5)[1]
    (only,) = shell.document("ls")
    assert only["task"] == "tsk_none", "what was never called is not on record"


@pytest.mark.parametrize("words", [["cancel"], ["answer", "--decline"]])
def test_an_id_that_is_mistyped_does_not_stay_on_record_as_a_task_that_goes_on(shell: Shell, words: list[str]) -> None:
    task = shell.detached("gated")
    _, errors = shell(*words, "tsk_typo", "--server", shell.url, code=5)
    assert errors == LOST
    assert [(each["id"], each["status"]) for each in shell.document("ls")] == [(task, "open"), ("tsk_typo", "lost")]
    shell.open_gate()
    assert shell.document("resume")["task"] == task


def test_what_is_on_record_can_be_forgotten(shell: Shell) -> None:
    task = shell.detached("gated")
    with shell.journal() as other:
        other.intend(shell.url, "hello", "theirs", {})
        assert "just making" in shell("forget", task, "theirs", code=2)[1]
    assert [each["status"] for each in shell.document("ls")] == ["open", "unsure"], "all or none"
    assert shell("forget", task[:12], "theirs")[1] == f"perdure: {task} is forgotten\nperdure: theirs is forgotten\n"
    assert shell.document("ls") == []
    assert "knows no task" in shell("forget", task, code=2)[1]
    assert shell.tools.ended == [], "nothing was stopped"
    shell.open_gate()


def test_one_that_can_not_be_cancelled_keeps_nobody_from_cancelling_the_others(shell: Shell) -> None:
    first, last = shell.detached("gated"), shell.detached("gated")
    with shell.journal() as journal:
        journal.adopt("http://127.0.0.1:9/mcp", "tool", "tsk_away")
        journal.adopt(shell.url, "tool", "tsk_gone")
    done = shell.document("cancel", first, "tsk_away", "tsk_gone", last, first, code=5)
    assert [(each["task"], each["status"]) for each in done] == [
        (first, "working"),
        ("tsk_away", "unavailable"),
        ("tsk_gone", "lost"),
        (last, "working"),
    ]
    assert "knows no task 'typo'" in shell("cancel", last, "typo", code=2)[1]
    assert shell.document("watch", first, last, code=3)[1]["status"] == "cancelled"


def test_an_answer_that_comes_too_late_is_no_success(shell: Shell) -> None:
    shell.call("ask", "--questions", "leave", code=4)
    task = shell.document("ls")[0]["task"]
    ghosts = iter([True])

    def haunted(answer: dict[str, Any]) -> dict[str, Any]:
        """Asks something that it asks no more the next time."""
        asked = answer["inputRequests"]
        return (
            {**answer, "inputRequests": {**asked, "ghost": next(iter(asked.values()))}} if next(ghosts, 0) else answer
        )

    shell.spy.change["tasks/get"] = haunted
    found = shell.document("answer", task, "ghost.ok=yes", code=1)
    assert (found["status"], found["task"]) == ("refused", task)
    assert "has not taken it: ghost" in found["message"]
    del shell.spy.change["tasks/get"]
    assert "has its answer" in shell("answer", task, "ok=yes")[1]
    assert shell("resume", task)[0] == "accept True\n"
    found = shell.document("answer", task, "ok=yes", code=1)
    assert (found["status"], found["message"]) == ("refused", f"{task} asks nothing any more: it is completed")


def test_an_answer_that_was_sent_before_is_not_said_to_be_this_one(shell: Shell) -> None:
    shell.call("ask", "--questions", "leave", code=4)
    task = shell.document("ls")[0]["task"]
    asked: dict[str, Any] = {}

    def forgetful(answer: dict[str, Any]) -> dict[str, Any]:
        """Asks on, whatever it was answered."""
        asked.update(answer.get("inputRequests", {}))
        return {**answer, "status": "input_required", "inputRequests": asked}

    shell.spy.change["tasks/get"] = forgetful
    shell("answer", task, "ok=yes")
    _, errors = shell("answer", task, "ok=no")
    assert errors == f"perdure: {task} has its answer, which is the one that was given before: {next(iter(asked))}\n"
    sent = [each.params["inputResponses"] for each in shell.spy.asked if each.method == "tasks/update"]
    assert len(sent) == 2
    assert sent[0] == sent[1]


def test_an_id_is_printed_on_one_line_whatever_the_server_takes_for_one(shell: Shell) -> None:
    shell.spy.change["tools/call"] = lambda answer: {**answer, "taskId": f"tsk_{EVIL}\nsecond"}
    assert shell.call("gated", "--detach")[0] == "tsk_a [2J ]0;owned b 31m second\n"


def test_a_refusal_of_the_server_exits_with_1(shell: Shell) -> None:
    shell.spy.refuse["tools/call"] = always(-32603, EVIL)
    found = shell.document("call", shell.url, "hello", "name=Ada", code=1)
    assert (found["status"], found["error"]["code"]) == ("refused", -32603)
    assert shell.document("ls") == []


def test_a_refusal_that_passes_exits_with_7_and_says_when_to_come_back(shell: Shell) -> None:
    shell.spy.refuse["tools/call"] = always(-32000, "Too many tasks wait", {"retryAfterMs": 1500})
    _, errors = shell("call", shell.url, "hello", "name=Ada", code=7)
    assert errors == "perdure: The server has no room just now: Too many tasks wait; try again in 2 s\n"
    found = shell.document("call", shell.url, "hello", "name=Ada", code=7)
    assert (found["status"], found["error"]["data"]) == ("refused", {"retryAfterMs": 1500})
    assert shell.document("ls") == []


def test_a_server_without_tasks_answers_at_once_past_any_proxy(tmp_path: Path) -> None:
    mcp = MCPServer("plain")

    @mcp.tool()
    def add(a: int, b: int) -> int:
        return a + b

    env = {"HTTP_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9", "no_proxy": "", "NO_PROXY": ""}
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(mcp)) as (_, url):
        assert run("call", url, "add", "a=1", "b=2", "--detach", folder=tmp_path, env=env)[0] == "3\n"
        found = json.loads(run("call", url, "add", "a=1", "b=2", "--json", folder=tmp_path, env=env)[0])
        assert (found["task"], found["result"]["structuredContent"]) == (None, {"result": 3})
        assert run("ls", folder=tmp_path, env=env)[0] == "No calls.\n"


def test_nobody_can_be_asked_without_a_terminal(shell: Shell) -> None:
    reason = "there is no terminal to ask at"
    assert reason in (shell.call("ask", "--questions", "ask", code=2))[1]
    assert shell.tools.ran == []


def test_what_is_asked_before_there_is_a_task_needs_a_terminal(shell: Shell) -> None:
    _, errors = shell.call("send_letters", code=1)
    assert errors == ("perdure: The tool asks before it begins, and only a person at a terminal can answer: To whom?\n")
    assert shell.document("ls") == []


def test_an_answer_that_makes_no_sense_is_told_in_a_line(shell: Shell) -> None:
    shell.spy.change["tools/list"] = lambda _: {"tools": EVIL}
    _, errors = shell.call("hello", "name=Ada", code=5)
    assert errors == "perdure: The server's answer is not what the protocol has\n"


def test_what_nobody_thought_of_is_shown_in_full_and_paints_nothing() -> None:
    try:
        raise LookupError(EVIL)
    except LookupError as error:
        outcome = desk.unforeseen(error)
    assert "test_what_nobody_thought_of" in outcome.words
    assert text.block(outcome.words).endswith("LookupError: a\ufffd[2J\ufffd]0;owned\ufffdb\ufffd31m\n")


def test_the_tools_of_a_server_are_listed(shell: Shell) -> None:
    output, _ = shell("tools", shell.url)
    assert output.startswith("hello  Greet.\n  name  string, needed\n")
    found = shell.document("tools", shell.url)
    assert found[0]["inputSchema"]["required"] == ["name"]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_server_is_started_by_its_command_and_started_again_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    server = ("--", sys.executable, str(REPORT_SERVER), "--stdio", "--store", "sqlite:///tasks.db")
    words = ("generate_report", "size=large", "--questions", "leave", "--json")
    task = json.loads(run("call", *words, *server, folder=tmp_path, code=4)[0])["task"]
    monkeypatch.chdir(tmp_path)
    run("answer", task[:9], "approved=yes", folder=tmp_path)
    assert json.loads(run("resume", folder=tmp_path)[0]) == {"size": "large", "approved": True}
    assert f"{REPORT_SERVER} --stdio --store sqlite:///tasks.db (in {folder})" in run("ls", folder=tmp_path)[0]


SAYS_TOO_MUCH = r"import sys; sys.stderr.write('x' * 30_000_000 + '\n' * 30 + '\x1b[2Jno'); sys.exit(1)"


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["/no/such/program"], 2, "/no/such/program (in "),
        ([sys.executable, "-c", r"import sys; sys.exit('\x1b[2Jno')"], 5, "\n  | [2Jno\n"),
        ([sys.executable, "-c", SAYS_TOO_MUCH], 5, "\n  | [2Jno\n"),
        ([sys.executable, "-c", SAYS_TOO_MUCH.replace(r"'\n' * 30", "''")], 5, "xxx [2Jno\n"),
    ],
    ids=["none", "a line", "30 MB", "30 MB in a line"],
)
def test_a_command_that_is_no_server_is_told_with_the_last_that_it_said(
    tmp_path: Path, command: list[str], code: int, said: str
) -> None:
    _, errors = run("tools", "--", *command, folder=tmp_path, code=code)
    assert said in errors
    assert len(errors) < 20_000


def test_a_journal_that_is_damaged_is_told_in_a_line(shell: Shell) -> None:
    with shell.journal() as journal:
        file = journal.path
    assert file is not None
    file.write_bytes(b"\0" * 8192)
    for words in (["ls"], ["forget", "tsk_1"], ["resume"]):
        _, errors = shell(*words, code=5)
        (line,) = errors.splitlines()
        assert line.startswith(f"perdure: The journal {file} can't be used: ")


def test_a_result_that_can_not_be_printed_is_told_with_how_to_have_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_tool(shell)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(shell.folder))
    for words in (["hello", "name=Ada"], ["charge"]):
        with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):  # noqa: PT012
            patched.setattr(sys, "stdout", Full())
            main(["call", shell.url, *words], standalone_mode=False)
    (entry,) = shell.document("ls")
    errors = capsys.readouterr().err
    assert f"perdure: The result could not be printed; it is still there: perdure resume {entry['id']}\n" in errors
    assert errors.endswith("perdure: The result could not be printed; it is gone, since it had no task\n")
    assert shell("resume", entry["id"])[0] == "Hello, Ada!\n"
