"""A client that is killed at each point between its call and the result, and comes back: called once, asked once.

Real processes throughout: the server, the client that dies by SIGKILL where `failpoints` says, and the one that comes
back with its journal.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import anyio
import pytest

from perdure.client.failpoints import FAILPOINTS, VARIABLE
from tests import copies
from tests.acceptance.support import CRASH_SERVER, effects, rows, running
from tests.support import PATIENCE, eventually

ASKED_AGAIN = {"question answered", "round answered"}
"""The one moment of a question that nothing covers: the user has answered, and only the process that died knew it."""


@dataclass(frozen=True)
class Caller:
    process: copies.Copy
    output: IO[bytes]


@asynccontextmanager
async def program(url: str, folder: Path, *options: str, **env: str) -> AsyncGenerator[Caller]:
    """The caller, in a folder of its own. It is gone at the end."""
    tool = "question_before" if env.get(VARIABLE, "").startswith("round") else "one_question"
    arguments = [url, str(folder / "journal.db"), str(folder / "asked"), tool, *options]
    command = [sys.executable, "-m", "tests.client.caller", *arguments]
    with TemporaryFile() as output:
        process = copies.start(command, env={**os.environ, **env}, output=output.fileno())
        try:
            yield Caller(process, output)
        finally:
            process.kill()
            await process.wait()


async def ended(caller: Caller) -> tuple[int | None, str]:
    """Its exit status, and what it printed."""
    async with asyncio.timeout(PATIENCE):
        status = await caller.process.wait()
    return status, copies.written(caller.output)


def folder_of(folder: Path, failpoint: str) -> Path:
    return folder / failpoint.replace(" ", "-")


async def die_and_return(url: str, folder: Path, failpoint: str) -> dict[str, Any]:
    async with program(url, folder, **{VARIABLE: failpoint}) as process:
        assert (await ended(process))[0] == -signal.SIGKILL, f"it never came to {failpoint!r}"
    async with program(url, folder, "resume") as process:
        status, output = await ended(process)
    assert status == 0, failpoint
    return json.loads(output)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_wherever_a_client_dies_the_tool_has_run_once_and_the_user_was_asked_once(tmp_path: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    at_once = anyio.CapacityLimiter(2)
    for failpoint in FAILPOINTS:
        folder_of(tmp_path, failpoint).mkdir()
    async with running(CRASH_SERVER, tmp_path) as (_, client), anyio.create_task_group() as group:

        async def one(failpoint: str) -> None:
            async with at_once:
                found[failpoint] = await die_and_return(client.url, folder_of(tmp_path, failpoint), failpoint)

        for failpoint in FAILPOINTS:
            group.start_soon(one, failpoint)
    assert found.keys() == set(FAILPOINTS)
    for failpoint, result in found.items():
        asked = (folder_of(tmp_path, failpoint) / "asked").read_text().splitlines()
        assert len(asked) == 1 + (failpoint in ASKED_AGAIN), failpoint
        assert result["answers"] == {"name": "Ada"}, failpoint
        assert [one.token for one in effects(tmp_path, result["id"], "end")] == [result["token"]], failpoint
    assert len({result["id"] for result in found.values()}) == len(FAILPOINTS)
    assert rows(tmp_path, "SELECT count(*) FROM task") == [(len(FAILPOINTS),)]


# -- two processes that wait for one task ------------------------------------------------------------------------------

GATE = "gate"


def asked(folder: Path) -> int:
    found = folder / "asked"
    return len(found.read_text().splitlines()) if found.exists() else 0


@asynccontextmanager
async def two_that_wait(
    folder: Path,
) -> AsyncGenerator[tuple[Caller, Caller]]:
    """A process whose user was asked and answers once the file GATE is there, and another one for the same task."""
    gate = str(folder / GATE)
    async with running(CRASH_SERVER, folder) as (_, client), program(client.url, folder, GATE=gate) as first:
        await eventually(lambda: asked(folder) == 1, "the first one asks")
        async with program(client.url, folder, "resume", GATE=gate) as second:
            await eventually(lambda: len(list(folder.glob("*.user"))) == 2, "the second one is there")
            yield first, second


@pytest.mark.slow
async def test_two_processes_that_wait_for_one_task_ask_once(tmp_path: Path) -> None:
    async with two_that_wait(tmp_path) as (first, second):
        await asyncio.sleep(2)
        assert asked(tmp_path) == 1
        await anyio.Path(tmp_path / GATE).touch()
        (status, output), (other_status, other_output) = await ended(first), await ended(second)
    assert status == other_status == 0
    assert output == other_output
    assert asked(tmp_path) == 1


@pytest.mark.slow
async def test_a_question_of_a_process_that_died_at_it_is_asked_by_the_other_one(tmp_path: Path) -> None:
    async with two_that_wait(tmp_path) as (first, second):
        first.process.kill()
        await eventually(lambda: asked(tmp_path) == 2, "the second one asks")
        await anyio.Path(tmp_path / GATE).touch()
        status, output = await ended(second)
    assert status == 0
    assert json.loads(output)["answers"] == {"name": "Ada"}
