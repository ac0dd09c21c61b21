"""A client that is killed at each point between its call and the result, and comes back: called once, asked once.

Real processes throughout: the server, the client that dies by SIGKILL where `failpoints` says, and the one that comes
back with its journal.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.client.failpoints import FAILPOINTS, VARIABLE
from tests.acceptance.support import CRASH_SERVER, effects, rows, running
from tests.support import PATIENCE
from tests.wire.support import ROOT

ASKED_AGAIN = {"question answered"}
"""The one moment that nothing covers: the user has answered, and only the process that died knew it."""


async def program(url: str, folder: Path, *options: str, env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """The caller, in a folder of its own: its exit status and what it printed."""
    arguments = [url, str(folder / "journal.db"), str(folder / "asked"), *options]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.client.caller", *arguments),
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return process.returncode, output


def folder_of(folder: Path, failpoint: str) -> Path:
    return folder / failpoint.replace(" ", "-")


async def die_and_return(url: str, folder: Path, failpoint: str) -> dict[str, Any]:
    status, _ = await program(url, folder, "one_question", env={VARIABLE: failpoint})
    assert status == -signal.SIGKILL, f"it never came to {failpoint!r}"
    status, output = await program(url, folder, "one_question", "resume")
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
