"""A copy is the program that was asked for, and ends as that would."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests import copies
from tests.acceptance.support import exists
from tests.support import eventually

TELL = "import os, sys; print(os.getpid() != os.getppid(), os.getcwd(), os.environ['WHO'], sys.argv); sys.exit(7)"


async def test_it_has_arguments_a_folder_an_environment_and_an_exit_status_of_its_own(tmp_path: Path) -> None:
    ended = await copies.ended(
        [sys.executable, "-c", TELL, "one", "two"], cwd=tmp_path, env={**os.environ, "WHO": "Ada"}
    )
    assert ended == copies.Ended(7, f"True {tmp_path} Ada ['-c', 'one', 'two']\n", "")


@pytest.mark.parametrize("how", ["script", "module"])
async def test_a_script_and_a_module_run_as_main_beside_their_own(how: str, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("word = 'found'\n")
    (tmp_path / "program.py").write_text("import beside; print(__name__, beside.word)\n")
    words = ["program.py"] if how == "script" else ["-m", "program"]
    ended = await copies.ended([sys.executable, *words], cwd=tmp_path)
    assert ended == copies.Ended(0, "__main__ found\n", "")


async def test_what_nobody_caught_is_told_and_is_a_failure() -> None:
    ended = await copies.ended([sys.executable, "-c", "1 / 0"])
    assert (ended.code, ended.errors.splitlines()[-1]) == (1, "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_it_is_ended_by_a_signal_and_is_gone(how: signal.Signals, tmp_path: Path) -> None:
    up = tmp_path / "up"
    program = f"import pathlib, time; pathlib.Path({str(up)!r}).touch(); time.sleep(600)"
    copy = copies.start([sys.executable, "-c", program])
    await eventually(up.exists, "it runs")
    os.kill(copy.pid, how)
    async with asyncio.timeout(10):
        assert await copy.wait() == -how
    assert not exists(copy.pid)


async def test_one_that_is_talked_to_answers_and_complains_over_pipes_and_is_gone_at_the_end() -> None:
    program = "import sys; print(input()[::-1], flush=True); print('what?', file=sys.stderr); sys.stdin.read()"
    async with copies.talking([sys.executable, "-c", program]) as copy, asyncio.timeout(10):
        assert copy.stdin
        assert copy.stdout
        assert copy.stderr
        copy.stdin.write(b"said\n")
        assert (await copy.stdout.readline(), await copy.stderr.readline()) == (b"dias\n", b"what?\n")
        assert copy.returncode is None
    assert copy.returncode == -signal.SIGKILL


async def test_one_without_a_buffer_says_each_line_at_once() -> None:
    program = "import sys; print('here'); sys.stdin.read()"
    async with copies.talking([sys.executable, "-u", "-c", program]) as copy, asyncio.timeout(10):
        assert copy.stdout
        assert await copy.stdout.readline() == b"here\n"
        assert await copy.communicate() == (b"", b"")
    assert copy.returncode == 0


async def test_the_command_line_is_called_as_it_was_typed() -> None:
    ended = await copies.ended([copies.PERDURE, "serve", "nowhere:mcp"])
    assert (ended.code, ended.errors.splitlines()[0]) == (2, "Usage: perdure serve [OPTIONS] MODULE:APP")


def test_a_program_that_would_load_something_else_is_not_copied() -> None:
    with pytest.raises(AssertionError, match="no program of ours"):
        copies.start(["sleep", "1"])
    with pytest.raises(AssertionError, match="what it is to load"):
        copies.start([sys.executable, "-c", ""], env={"PYTHONPATH": "/elsewhere"})
