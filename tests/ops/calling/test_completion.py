"""What a shell completes, and what it must not: a server chooses its ids, and bash takes what is offered as it is."""

import os
from contextlib import closing
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from perdure.ops.calling import book
from perdure.ops.cli import main
from tests.ops.calling.shell import run


@pytest.mark.parametrize("shell_name", ["bash", "zsh", "fish"])
def test_completion_has_a_script_for_each_shell(shell_name: str, tmp_path: Path) -> None:
    assert "_PERDURE_COMPLETE" in run("completion", shell_name, folder=tmp_path)[0]
    assert list(os.scandir(tmp_path)) == []


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        ([], "res", "resume"),
        (["resume"], "tsk_", "tsk_abc"),
        (["forget"], "un", "unsure-key"),
        (["call"], "--det", "--detach"),
    ],
)
def test_commands_options_and_ids_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], incomplete: str, found: str
) -> None:
    monkeypatch.setenv("PERDURE_JOURNAL", str(tmp_path / "j.db"))
    complete = BashComplete(main, {}, "perdure", "_PERDURE_COMPLETE").get_completions
    if found not in ("tsk_abc", "unsure-key"):
        assert [each.value for each in complete(words, incomplete)] == [found]
        return
    assert complete(words, incomplete) == []
    assert list(os.scandir(tmp_path)) == [], "a journal that is not there is not made"
    journal = book.opened(str(tmp_path / "j.db"))
    journal.adopt("http://127.0.0.1:1/mcp", "tool", "tsk_abc")
    journal.adopt("http://127.0.0.1:2/mcp", "tool", "tsk_abc")
    journal.intend("http://127.0.0.1:1/mcp", "tool", "unsure-key", {})
    journal.close()
    assert [each.value for each in complete(words, incomplete)] == [found]


def test_only_what_a_shell_takes_as_it_is_and_a_command_is_for_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_JOURNAL", str(tmp_path / "j.db"))
    complete = BashComplete(main, {}, "perdure", "_PERDURE_COMPLETE").get_completions
    with closing(book.opened(str(tmp_path / "j.db"))) as journal:
        for each in ("$(reboot)", "a;b", "a b", "a\n", "-a", "--json", "*", "a'b", "tsk-1.a:b_C"):
            journal.adopt("http://127.0.0.1:1/mcp", "tool", each)
        journal.settle(journal.adopt("http://127.0.0.1:1/mcp", "tool", "done"), "completed")
        journal.let_go(journal.intend("http://127.0.0.1:1/mcp", "tool", "key", {})[0])
    for verb, found in {
        "resume": ["key", "done", "tsk-1.a:b_C"],
        "forget": ["key", "done", "tsk-1.a:b_C"],
        "watch": ["tsk-1.a:b_C"],
        "cancel": ["tsk-1.a:b_C"],
        "answer": ["tsk-1.a:b_C"],
    }.items():
        assert [each.value for each in complete([verb], "")] == found, verb
