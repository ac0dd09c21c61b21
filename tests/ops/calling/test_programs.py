"""What only a program of its own shows: pipes and exit codes, its arguments, two at once, what a shell completes."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perdure.ops.calling import book
from tests.ops.calling.shell import Shell, shell_of
from tests.ops.calling.terminal import PERDURE, surroundings
from tests.support import PATIENCE, eventually


@pytest.fixture
def shell(tmp_path: Path) -> Generator[Shell]:
    with shell_of(tmp_path) as up:
        yield up


@contextmanager
def started(shell: Shell, *command: str, **env: str) -> Generator[subprocess.Popen[str]]:
    """A program with pipes; it is killed at the end, unless it has ended."""
    environment = {**surroundings(), "XDG_STATE_HOME": str(shell.folder), **env}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_result_is_on_standard_output_alone_also_without_a_letter_that_the_locale_does_not_have(
    shell: Shell,
) -> None:
    with started(shell, *PERDURE, "call", shell.url, "hello", "name=漢", PYTHONIOENCODING="latin-1") as program:
        output, errors = program.communicate(timeout=PATIENCE)
    assert (program.returncode, output) == (0, "Hello, ?!\n")
    lines = errors.splitlines()
    assert lines[0].startswith("hello  tsk_")
    assert lines[-1].endswith("completed")


def test_a_question_is_told_with_how_to_answer_it_and_waited_for(shell: Shell) -> None:
    with started(shell, *PERDURE, "call", shell.url, "ask", "--json") as waiting:
        task = shell.once_asked()
        for words, reason in (
            ((task,), "say what to answer:"),
            ((task, "ok=perhaps"), "ok: it must be yes or no"),
            ((task, "yes=ok"), "has no field 'yes'; there are: ok"),
            ((task, "--decline", "--question", "x"), "say which question"),
        ):
            assert reason in shell("answer", *words, code=2)[1]
        assert shell("answer", task, "--decline")[1] == f"perdure: {task} has its answer\n"
        output, errors = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0
    assert "decline None" in output
    assert f"  perdure answer {task} ok=…\n  perdure answer {task} --decline\n" in errors


def test_a_token_is_sent_and_is_in_nobodys_sight(shell: Shell) -> None:
    """Not in the arguments of the process, nor in what it says, nor in the journal."""
    with started(shell, *PERDURE, "call", shell.url, "gated", PERDURE_TOKEN="hush-hush") as program:
        shell.portal.call(eventually, shell.tools.entered.is_set, "it runs")
        seen = Path(f"/proc/{program.pid}/cmdline").read_text("utf-8")
        shell.open_gate()
        output, errors = program.communicate(timeout=PATIENCE)
    assert {each.headers["authorization"] for each in shell.spy.asked} == {"Bearer hush-hush"}
    journal = b"".join(each.read_bytes() for each in (shell.folder / "perdure").iterdir())
    assert "hush-hush" not in seen + output + errors + journal.decode("latin-1")
    assert (program.returncode, output) == (0, "through\n")


def test_bash_completes_ids(tmp_path: Path, shell: Shell) -> None:
    with closing(book.opened(str(tmp_path / "j.db"))) as journal:
        journal.adopt("http://127.0.0.1:1/mcp", "tool", "tsk_abc")
    program = tmp_path / "perdure"
    program.write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "{PERDURE[2]}" "$@"\n')
    program.chmod(0o700)
    script, _ = shell("completion", "bash")
    words = "COMP_WORDS=(perdure resume tsk_); COMP_CWORD=2"
    ask = f'{script}\n{words}\n_perdure_completion perdure\necho "${{COMPREPLY[@]}}"'
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PERDURE_JOURNAL": str(tmp_path / "j.db")}
    with started(shell, "bash", "-c", ask, **env) as bash:
        assert bash.communicate(timeout=PATIENCE)[0].split() == ["tsk_abc"]
