"""Commands about several tasks: of each it is said what came of it, and none keeps anybody from another."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.client.spy import always
from tests.ops.calling.shell import Shell, journal_in, run, shell_of

NOWHERE = "http://127.0.0.1:9/mcp"


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    with shell_of(tmp_path) as up:
        yield up


@pytest.fixture
def away(shell: Shell) -> str:
    """A task on record of a server that is not there."""
    with shell.journal() as journal:
        journal.adopt(NOWHERE, "tool", "tsk_away")
    return "tsk_away"


def test_a_server_that_is_not_there_keeps_nobody_from_watching_the_others(shell: Shell, away: str) -> None:
    task = shell.detached("hello", "name=Ada")
    found = shell.document("watch", away, task, code=5)
    assert [(each["task"], each["status"]) for each in found] == [(away, "unavailable"), (task, "completed")]


def test_a_server_of_another_programs_making_keeps_nobody_from_watching_the_others(shell: Shell) -> None:
    """A program's own journal: `Tasks(server="prod")`, or a server within the program."""
    task = shell.detached("hello", "name=Ada")
    with shell.journal() as journal:
        journal.adopt("prod", "tool", "tsk_within")
    found = shell.document("watch", "tsk_within", task, code=5)
    assert [(each["task"], each["status"]) for each in found] == [("tsk_within", "unavailable"), (task, "completed")]


def test_of_several_each_line_says_whose_it_is(shell: Shell, away: str) -> None:
    tasks = [shell.detached("hello", f"name={name}") for name in ("Ada", "Bob")]
    with shell.journal() as journal:
        journal.adopt(shell.url, "tool", "tsk_gone")
    output, errors = shell("watch", *tasks, away, "tsk_gone", code=5)
    assert output == f"{tasks[0]}:\nHello, Ada!\n{tasks[1]}:\nHello, Bob!\n"
    assert f"perdure: {away}: {NOWHERE}: no connection" in errors
    assert "perdure: tsk_gone: The server does not know the task" in errors
    assert shell("watch", tasks[0])[0] == "Hello, Ada!\n", "of one it is clear"


def test_who_watches_calls_nothing(shell: Shell) -> None:
    shell.broken_off("gated", "mine")
    _, errors = shell("watch", "mine", code=2)
    assert "mine is a call, and nobody knows whether there is a task of it: perdure resume " in errors
    assert shell.spy.came["tools/call"] == 0
    assert shell.tools.ran == []


def test_an_id_that_nobody_knows_is_told_with_what_the_command_has(shell: Shell) -> None:
    assert "or say --server" not in shell("watch", "tsk_zz", code=2)[1]
    assert "or say --server" in shell("resume", "tsk_zz", code=2)[1]


def test_a_task_that_is_over_is_not_said_to_be_asked_to_stop(shell: Shell) -> None:
    done = shell.detached("hello", "name=Ada")
    shell("resume", done)
    (found,) = shell.document("cancel", done, code=1)
    assert (found["status"], found["message"]) == ("completed", f"{done} is over, and was not stopped: it is completed")
    stopped = shell.detached("gated")
    shell("cancel", stopped)
    shell("resume", stopped, code=3)
    (found,) = shell.document("cancel", stopped)
    assert (found["status"], found["message"]) == ("cancelled", f"{stopped} was cancelled before")


def test_a_task_that_the_server_did_not_know_is_asked_for_again(shell: Shell) -> None:
    task = shell.detached("hello", "name=Ada")
    shell.spy.refuse["tasks/get"] = always(-32602, "no such task")
    assert shell.document("resume", task, code=5)["status"] == "lost"
    assert [each["status"] for each in shell.document("ls")] == ["lost"]
    del shell.spy.refuse["tasks/get"]
    assert shell("watch")[0] == "Hello, Ada!\n"
    assert [each["status"] for each in shell.document("ls")] == ["completed"]


def test_candidates_are_shown_with_their_servers(shell: Shell, away: str) -> None:
    task = shell.detached("hello", "name=Ada")
    _, errors = shell("resume", "tsk_", code=2)
    assert f"'tsk_' may be {away} at {NOWHERE}, {task} at {shell.url}" in errors


def test_one_id_at_two_servers_is_told_apart_by_the_server_and_forgotten_at_both(shell: Shell) -> None:
    """As two gateways know a task that share a table of routes."""
    task = shell.detached("hello", "name=Ada")
    with shell.journal() as journal:
        journal.adopt(NOWHERE, "hello", task)
    _, errors = shell("resume", task[:12], code=2)
    assert f"may be {task} at {shell.url}, {task} at {NOWHERE}: say which by --server" in errors
    assert shell("resume", task, "--server", shell.url)[0] == "Hello, Ada!\n"
    shell("forget", task)
    assert shell.document("ls") == []


def test_a_secret_in_a_url_on_record_is_not_shown(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        journal.adopt("https://a.example/mcp?tenant=7&api_key=hush", "tool", "tsk_a")
        journal.adopt("https://ada:hush@b.example/@c/mcp", "tool", "tsk_b")
    output, _ = run("ls", "--json", folder=tmp_path)
    assert [each["server"] for each in json.loads(output)] == [
        "https://a.example/mcp?tenant=7&api_key=…",
        "https://…@b.example/@c/mcp",
    ]
    assert "hush" not in "".join(run("watch", "tsk_", folder=tmp_path, code=2))
