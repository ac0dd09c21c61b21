"""Operators at work, as processes of their own, while a server runs its tasks on the same store."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import attended, free_port, rows, store_url
from tests.acceptance.workers import PERDURE, launch
from tests.support import eventually
from tests.wire.support import ROOT, Client

SOON = 10.0
"""Seconds that an operator and a server may take, on a machine that is shared, where they would else take a day."""


class Site:
    """A server that runs its own tasks, a client of it, and operators beside it."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client

    async def operate(self, *words: str) -> tuple[int, str]:
        """A command of an operator: its status, and what it printed."""
        child = await asyncio.create_subprocess_exec(
            PERDURE, "tasks", *words, "--store", store_url(self.folder), cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, complaint = await child.communicate()
        assert b"Traceback" not in complaint, complaint.decode()
        assert child.returncode is not None
        return child.returncode, (output or complaint).decode()

    async def told(self, *words: str) -> Any:
        status, output = await self.operate(*words, "--json")
        assert status == 0, output
        return json.loads(output)

    async def is_held(self) -> None:
        await self._run_is("session IS NOT NULL")

    async def waits(self) -> None:
        await self._run_is("due_at > 0 AND session IS NULL")

    async def _run_is(self, what: str) -> None:
        await eventually(lambda: rows(self.folder, f"SELECT {what} FROM run") == [(1,)], f"the run: {what}")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    port = free_port()
    app = ["tests.acceptance.napping:mcp", "--port", str(port), "--store", store_url(tmp_path)]
    server = await launch(tmp_path, PERDURE, "serve", *app, port=port)
    async with attended(server) as (_, client):
        yield Site(tmp_path, client)


async def test_what_a_live_worker_holds_is_told_to_stop_and_does(site: Site) -> None:
    task_id = await site.client.start("for_ever", {})
    await site.is_held()
    status, output = await site.operate("retry", task_id)
    assert (status, "a worker has it" in output) == (1, True)
    assert (await site.told("cancel", task_id))["tasks"][0]["outcome"] == "asked"
    assert (await site.client.until(task_id))["status"] == "cancelled"
    status, output = await site.operate("cancel", task_id)
    assert (status, output) == (0, f"{task_id}  over before: cancelled\n")


@pytest.mark.parametrize("tool", ["nap", "try_step", "try_all"])
async def test_what_waits_for_days_goes_on_when_an_operator_hurries_it(site: Site, tool: str) -> None:
    file = site.folder / "file"
    task_id = await site.client.start(tool, {} if tool == "nap" else {"file": str(file)})
    await site.waits()
    file.write_text("slept")
    assert (await site.told("retry", task_id))["outcome"] == "due"
    async with asyncio.timeout(SOON * 3):
        done = await site.client.until(task_id)
    assert (done["status"], done["result"]["content"][0]["text"]) == ("completed", "slept")


async def test_what_is_over_is_ordered_anew_and_run_and_thrown_away_with_the_old_one(site: Site) -> None:
    file = site.folder / "file"
    file.write_text("first")
    task_id = await site.client.start("try_all", {"file": str(file)})
    assert (await site.client.until(task_id))["result"]["content"][0]["text"] == "first"
    file.write_text("second")
    new_id = (await site.told("retry", task_id, "--anew"))["new"]
    assert (await site.client.until(new_id))["result"]["content"][0]["text"] == "second"
    assert await site.told("purge", "--status", "finished", "--yes") == {"purged": 2}
    assert await site.told("ls") == {"tasks": [], "more": False}
    gone = await site.client.get(task_id)
    assert "expired" in gone.error["message"]


async def test_operators_who_are_at_it_together_purge_each_task_once(site: Site) -> None:
    file = site.folder / "file"
    file.write_text("done")
    for _ in range(30):
        await site.client.start("try_all", {"file": str(file)})
    await eventually(lambda: rows(site.folder, "SELECT 1 FROM run") == [], "all are over")
    words = ("purge", "--tool", "try_all", "--yes")
    done = await asyncio.gather(*(site.told(*words) for _ in range(2)), site.told("stats"))
    assert sum(each["purged"] for each in done[:2]) == 30
    assert rows(site.folder, "SELECT count(*) FROM tombstone") == [(30,)]


async def test_who_reads_only_the_beginning_of_an_export_ends_it(site: Site) -> None:
    """As `head` does."""
    for _ in range(50):
        await site.client.start("nap", {})
    command = f"'{PERDURE}' tasks export --store '{store_url(site.folder)}' | head -n 1"
    child = await asyncio.create_subprocess_shell(
        command, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, complaint = await child.communicate()
    assert json.loads(output)["status"] == "working"
    assert complaint == b""
