"""The program `perdure` from its first line to its end: interrupted, or with nowhere to write."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from perdure.ops.ending import UNWRITTEN
from perdure.store.base import Store
from tests.ops.operating.support import minted, opened
from tests.support import PATIENCE

PROGRAM: Final = (sys.executable, "-c", "from perdure.ops.program import program; program()")
PAUSE: Final = "import signal\nprint('here', flush=True)\nwhile True: signal.pause()\n"
FULL: Final = "perdure: standard output can't be written: No space left on device\n"
CLOSED: Final = "perdure: standard output can't be written: Bad file descriptor\n"


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A store with one task."""
    url = f"sqlite:///{tmp_path / 'tasks.db'}"
    opened(url, created)
    return url


async def created(store: Store) -> str:
    return (await store.create(minted())).id


def interrupted(folder: Path, *words: str, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """The program, once it was told to stop by Ctrl-C at the moment that it says `here`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.getsignal(signal.SIGINT))
    try:
        process = subprocess.Popen(
            [*PROGRAM, *words],
            env={**os.environ, "PYTHONPATH": str(folder), "XDG_STATE_HOME": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "here\n"
            process.send_signal(signal.SIGINT)
            if ignored:
                process.terminate()
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("click", ("tasks", "ls")),
        ("anyio", ("tasks", "ls")),
        ("mcp", ("ls",)),
        ("uvicorn", ("serve", "server.py:mcp")),
    ],
)
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word(
    module: str, words: Sequence[str], tmp_path: Path
) -> None:
    (tmp_path / f"{module}.py").write_text(PAUSE)
    done = interrupted(tmp_path, *words)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_who_was_told_to_ignore_ctrl_c_ignores_it(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text(PAUSE)
    assert interrupted(tmp_path, "ls", ignored=True).returncode == -signal.SIGTERM


def test_ctrl_c_while_somebodys_module_is_loaded_lets_it_clean_up_and_shows_no_trace(tmp_path: Path) -> None:
    source = "import atexit\natexit.register(print, 'cleaned up')\n" + PAUSE
    (tmp_path / "server.py").write_text(source)
    done = interrupted(tmp_path, "worker", str(tmp_path / "server.py:mcp"))
    assert (done.returncode, done.stdout, done.stderr.strip()) == (-signal.SIGINT, "cleaned up\n", "")


def test_ctrl_c_at_a_question_is_no_answer_and_no_trace(store: str) -> None:
    with subprocess.Popen(
        [*PROGRAM, "tasks", "cancel", "--tool", "report", "--store", store],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            assert process.stderr
            asked = process.stderr.read(1)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (-signal.SIGINT, b"")
    assert (asked + err).strip() == b"Ask 1 task to stop? [y/N]:"


# -- nowhere to write --------------------------------------------------------------------------------------------------


def ran(words: Sequence[str], redirected: str, folder: Path) -> tuple[int, str, str]:
    """The program in a shell that redirects what it writes."""
    command = f'exec "$@" {redirected}'
    env = {**os.environ, "XDG_STATE_HOME": str(folder)}
    done = subprocess.run(
        ["sh", "-c", command, "sh", *PROGRAM, *words],
        capture_output=True,
        check=False,
        text=True,
        env=env,
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("words", [("ls",), ("tasks", "export")])
@pytest.mark.parametrize(("redirected", "said"), [(">/dev/full", FULL), (">&-", CLOSED)], ids=["full", "closed"])
def test_output_that_can_not_be_written_is_said_in_one_line_and_has_a_status(
    words: Sequence[str], redirected: str, said: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORE", store)
    assert ran(words, redirected, tmp_path) == (UNWRITTEN, "", said)


def test_what_can_not_be_said_beside_the_output_changes_nothing(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_STORE", store)
    for redirected in ("2>&-", "2>/dev/full"):
        code, out, _ = ran(("tasks", "export"), redirected, tmp_path)
        assert (code, out.count("\n")) == (0, 1)
        assert ran(("tasks", "show", "nope"), redirected, tmp_path) == (1, "", "")
    assert ran(("tasks", "nope"), "2>/dev/full", tmp_path) == (2, "", "")
    assert ran(("tasks", "export"), ">/dev/full 2>&-", tmp_path) == (UNWRITTEN, "", "")


def test_a_store_does_not_take_the_place_of_a_descriptor_that_was_closed(store: str, tmp_path: Path) -> None:
    before = (tmp_path / "tasks.db").read_bytes()
    code, _, _ = ran(("tasks", "purge", "--tool", "report", "--yes", "--store", store), "<&- >&- 2>&-", tmp_path)
    assert code == UNWRITTEN
    assert (tmp_path / "tasks.db").read_bytes()[:16] == before[:16]


def test_whoever_stops_reading_hears_nothing_more(store: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        done = subprocess.run(
            [*PROGRAM, "tasks", "export", "--store", store],
            check=False,
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
