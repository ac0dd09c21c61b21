"""A tool of a hundred steps on workers that are killed at each of them, one process after the other (`dying.py`)."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from tests.acceptance import dying
from tests.acceptance.support import rows, store_url
from tests.wire import support as wire
from tests.wire.support import ROOT, Client

STEPS: Final = dying.STEPS
WITHIN: Final = 100.0
"""Seconds for a hundred workers, which take 5 s on a quiet machine."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120, func_only=True),  # a hundred processes
]


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Client]:
    """A server that runs nothing."""
    dying.tasks.configure(store=store_url(folder), worker=False)
    async with wire.serving(dying.mcp) as (http, url):
        yield Client(http, url)


async def seen_through(folder: Path, tool: str) -> Any:
    """Call the tool, and let workers die of it until it is over; what it returned.

    Nobody has the store open between two workers, so each has to recover what the one before left behind.
    """
    for log in ("effects", "struck"):
        (folder / log).touch()
    async with serving(folder) as client:
        task_id = await client.start(tool, {"folder": str(folder)})
    assert await deaths(folder) == STEPS
    assert rows(folder, "SELECT count(*) FROM run") == [(0,)]
    async with serving(folder) as client:
        done = await client.get(task_id)
    assert done.result["status"] == "completed", done.result
    return done.result["result"]["structuredContent"]["result"]


async def deaths(folder: Path) -> int:
    """Run workers until one does not die; how many did."""
    command = [sys.executable, "-m", "tests.acceptance.dying", store_url(folder)]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(WITHIN):
            printed, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # the worker too, which is its child
            await process.wait()
    assert process.returncode == 0, complaints.decode()
    assert "Traceback" not in complaints.decode(), complaints.decode()
    return int(printed)


def effects(folder: Path) -> list[tuple[int, int]]:
    """What steps did, in order: the step, and the process that it ran in."""
    lines = [line.split() for line in (folder / "effects").read_text().splitlines()]
    return [(int(step), int(pid)) for step, pid in lines]


async def test_a_tool_of_a_hundred_steps_killed_after_each_in_turn_completes_with_each_run_once(tmp_path: Path) -> None:
    assert await seen_through(tmp_path, "killed_after") == sum(range(STEPS))
    done = effects(tmp_path)
    assert [step for step, _ in done] == list(range(STEPS))
    assert all(before != after for (_, before), (_, after) in pairwise(done)), "each in another process"


async def test_a_step_killed_before_it_is_on_record_runs_again_unless_it_may_only_once(tmp_path: Path) -> None:
    interrupted = await seen_through(tmp_path, "killed_within")
    runs = Counter(step for step, _ in effects(tmp_path))
    assert runs == {step: 1 if step % 2 else 2 for step in range(STEPS)}
    assert interrupted == [step for step in range(STEPS) if step % 2], "the tool is told of each that ran at most once"
