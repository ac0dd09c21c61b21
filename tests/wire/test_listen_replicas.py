"""Contract 7 where others commit: two processes on one SQLite file, and two replicas on PostgreSQL.

One process runs the tasks and the other one only serves: whatever the latter's listeners hear, it heard from outside.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.acceptance.replicas import Replica, attended, migrated, start_replica
from tests.acceptance.support import store_url
from tests.support import PATIENCE
from tests.wire.envelopes import JSON
from tests.wire.listening import listening

ROUNDS: Final = 10
MOST: Final = 8
SOON: Final = 1.0
"""Seconds: half of the time after which everything is asked for anyway. By that alone half of the rounds would do."""
ANSWER: Final[JSON] = {"action": "accept", "content": {"text": "Ada"}}


@dataclass
class Site:
    folder: Path
    working: Replica
    serving: Replica


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
async def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("listeners")
    store = store_url(folder)
    if request.param == "postgresql":
        store = await migrated(request.getfixturevalue("postgres"), "listeners")
    a = await start_replica(folder, store)
    async with attended(a) as working:
        b = await start_replica(folder, store, "--no-worker")
        async with attended(b) as serving:
            yield Site(folder, working, serving)


async def test_a_task_that_another_process_runs_is_followed_to_its_end(site: Site) -> None:
    task_id = await site.serving.client.start("progress", {"label": "followed", "steps": 5})
    async with listening(site.serving.client, task_id) as stream:
        assert await stream.begun() == [task_id]
        shown = await stream.ends()
    assert shown[-1]["status"] == "completed"
    got = (await site.working.client.get(task_id)).result
    assert shown[-1]["result"] == got["result"]


async def test_what_another_process_asks_is_shown_and_answered_through_any(site: Site) -> None:
    for answering in (site.working, site.serving):
        task_id = await site.working.client.start("one_question", {"label": "asked"})
        async with listening(site.serving.client, task_id) as stream:
            await stream.begun()
            asked = await stream.reaches("input_required")
            answers = dict.fromkeys(asked["inputRequests"], ANSWER)
            assert (await answering.client.update(task_id, answers)).result
            assert (await stream.reaches())["status"] == "completed"
            await stream.ends()


async def test_a_change_elsewhere_is_heard_soon(site: Site) -> None:
    soon = 0
    for count in range(ROUNDS):
        gate = site.folder / "never"
        task_id = await site.serving.client.start("waiting", {"label": f"soon {count}", "gate": f"{gate}"})
        async with listening(site.serving.client, task_id) as stream:
            await stream.begun()
            begun = time.monotonic()
            await site.working.client.cancel(task_id)
            await stream.reaches("cancelled")
            soon += time.monotonic() - begun < SOON
            await stream.ends()
    assert soon >= MOST


async def test_listeners_of_both_hear_the_same(site: Site) -> None:
    gate = site.folder / "gate"
    task_id = await site.working.client.start("waiting", {"label": "both", "gate": f"{gate}"})
    async with listening(site.working.client, task_id) as one, listening(site.serving.client, task_id) as other:
        for stream in (one, other):
            assert await stream.begun() == [task_id]
            await stream.snapshot()
        gate.touch()
        first, second = (await one.ends())[-1], (await other.ends())[-1]
    assert first.pop("_meta") == second.pop("_meta")
    assert first == second


async def test_many_tasks_are_followed_through_the_process_that_does_not_run_them(site: Site) -> None:
    client = site.serving.client
    tasks = [await client.start("short", {"label": f"many {count}"}) for count in range(20)]
    async with listening(client, *tasks) as stream:
        assert await stream.begun() == tasks
        shown = await stream.ends()
    assert {task["taskId"] for task in shown if task["status"] == "completed"} == set(tasks)


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
async def test_a_server_that_is_told_to_stop_ends_its_streams_and_one_that_is_killed_drops_them(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = store_url(tmp_path)
    if store == "postgresql":
        url = await migrated(request.getfixturevalue("postgres"), "stopping")
    first = await start_replica(tmp_path, url)
    async with attended(first) as stays:
        second = await start_replica(tmp_path, url, "--no-worker")
        async with attended(second) as goes:
            task_id = await stays.client.start("waiting", {"label": "x", "gate": f"{tmp_path / 'gate'}"})
            async with listening(stays.client, task_id) as left, listening(goes.client, task_id) as told:
                for stream in (left, told):
                    await stream.begun()
                    await stream.reaches("working")
                stopping = asyncio.create_task(second.stop())
                await told.ends()
                async with asyncio.timeout(PATIENCE):
                    await stopping
                await stays.client.get(task_id)
                await first.kill()
                await left.is_closed()
