"""Three replicas on one PostgreSQL, whose clocks are hours apart: any of them answers anything, at once.

A runs tasks, B and C only serve. A heartbeat comes every ten seconds here, and with it what no hint told; so whatever
is heard sooner was heard by the hint.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from perdure.testing.postgresql import Cluster
from tests.acceptance.replicas import Replica, attended, clock, migrated, sessions, start_replica, worker
from tests.acceptance.support import Server, connected, effect, effects
from tests.relay import Relay
from tests.support import eventually
from tests.wire.envelopes import EVERYTHING, meta

HOUR: Final = 3600
HINTED: Final = 5.0
"""Seconds within which a hint has come, however busy the machine is; and half of what a heartbeat takes."""
KEY: Final = "dev.perdure/idempotencyKey"


@dataclass
class Site:
    """What the tests of this file share."""

    folder: Path
    cluster: Cluster
    database: str
    a: Replica
    b: Replica
    c: Replica


@pytest.fixture(scope="module")
async def site(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("replicas")
    store = await migrated(postgres, "replicas")
    a, b, c = [
        await start_replica(folder, store, *options, env=clock(folder, ahead))
        for ahead, options in ((HOUR, ()), (-HOUR, ("--no-worker",)), (0, ("--no-worker",)))
    ]
    async with attended(a) as at_a, attended(b) as at_b, attended(c) as at_c:
        yield Site(folder, postgres, "replicas", at_a, at_b, at_c)


@contextmanager
def stopped(process: Server) -> Generator[None]:
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def accept(text: str) -> dict[str, object]:
    return {"name": {"action": "accept", "content": {"text": text}}}


async def test_a_handle_resolves_on_another_replica_before_the_response_with_it_has_arrived(site: Site) -> None:
    key = "before its response"

    async def made() -> bool:
        found = f"SELECT id FROM perdure.task WHERE idem_key = '{key}'"
        ids.append(await asyncio.to_thread(site.cluster.sql, found, site.database))
        return bool(ids[-1])

    ids: list[str] = []
    async with Relay("127.0.0.1", site.a.server.port, holding=True) as relay, connected(relay.port) as far:
        params = {"_meta": {**meta(EVERYTHING), KEY: key}}
        starting = asyncio.create_task(far.start("one_question", {"label": key}, params=params))
        await eventually(made, "the task is made")
        assert (await site.b.client.get(ids[-1])).result["taskId"] == ids[-1]
        await site.c.client.until(ids[-1], "input_required")
        await site.b.client.update(ids[-1], accept("Ada"))
        await site.c.client.until(ids[-1], "completed")
        assert not starting.done()
        relay.let_go()
        assert await starting == ids[-1]


async def test_every_replica_knows_a_handle_as_soon_as_there_is_one(site: Site) -> None:
    replicas = [site.a, site.b, site.c]
    for number in range(9):
        maker, *others = replicas[number % 3 :] + replicas[: number % 3]
        task_id = await maker.client.start("short", {"label": str(number)})
        for other in others:
            assert (await other.client.get(task_id)).result["taskId"] == task_id
        done = await others[0].client.until(task_id, "completed")
        assert (await others[1].client.get(task_id)).result["result"] == done["result"]
        made = datetime.fromisoformat(done["createdAt"])
        assert abs((datetime.now(UTC) - made).total_seconds()) < HOUR / 2, "the database's clock, whoever made it"


async def test_an_answer_to_one_replica_wakes_the_worker_of_another(site: Site) -> None:
    for name in ("Ada", "Bob", "Cleo"):
        task_id = await site.b.client.start("one_question", {"label": "far"})
        await site.b.client.until(task_id, "input_required")
        await site.c.client.update(task_id, accept(name))
        done = await site.b.client.until(task_id, "completed")
        assert done["result"]["structuredContent"]["answers"] == {"name": name}
        assert {one.pid for one in effects(site.folder, task_id)} == {site.a.server.pid}


async def test_of_answers_to_two_replicas_at_once_one_is_stored(site: Site) -> None:
    won: list[str] = []
    for number in range(10):
        task_id = await site.a.client.start("one_question", {"label": "contested"})
        await asyncio.gather(*(each.client.until(task_id, "input_required") for each in (site.b, site.c)))
        two = [(site.b, f"b{number}"), (site.c, f"c{number}")]
        await asyncio.gather(*(each.client.update(task_id, accept(name)) for each, name in two))
        done = await site.a.client.until(task_id, "completed")
        won.append(done["result"]["structuredContent"]["answers"]["name"])
        stored = f"SELECT response FROM perdure.input JOIN perdure.task ON seq = task_seq WHERE id = '{task_id}'"
        (answer,) = (await asyncio.to_thread(site.cluster.sql, stored, site.database)).splitlines()
        assert won[-1] in answer
        assert won[-1] in {name for _, name in two}
        assert len(effects(site.folder, task_id, "end")) == 1


async def test_a_cancel_through_one_replica_reaches_the_tool_on_another_by_the_hint(site: Site) -> None:
    took: list[float] = []
    for number in range(5):
        task_id = await site.b.client.start("cancellable", {"label": "stop", "seconds": HOUR, "stubborn": False})
        await effect(site.folder, task_id, "start", pid=site.a.server.pid)
        asked = time.monotonic()
        await (site.b, site.c)[number % 2].client.cancel(task_id)
        await effect(site.folder, task_id, "told to stop", pid=site.a.server.pid)
        took.append(time.monotonic() - asked)
        assert (await site.c.client.until(task_id))["status"] == "cancelled"
    assert max(took) < HINTED, took


async def test_a_worker_that_slept_past_its_lease_writes_nothing_whatever_its_clock_says(site: Site) -> None:
    """The lease is over when the database says so."""
    gate = site.folder / "asleep"
    store, env = site.cluster.url(site.database), {"LEASE": "4s"}
    async with worker(site.folder, store, {**env, **clock(site.folder, -HOUR)}) as sleeper, AsyncExitStack() as stack:
        with stopped(site.a.server):
            task_id = await site.b.client.start("waiting", {"label": "asleep", "gate": str(gate)})
            before = await effect(site.folder, task_id, "start", pid=sleeper.pid)
            with stopped(sleeper):  # before there is another, which might find it asleep while that is starting
                other = await stack.enter_async_context(worker(site.folder, store, {**env, **clock(site.folder, HOUR)}))
                after = await effect(site.folder, task_id, "start", pid=other.pid)
                assert (before.attempt, after.attempt) == (1, 2)
                gate.with_name(f"{gate.name}.{sleeper.pid}").touch()
            late = await effect(site.folder, task_id, "end", pid=sleeper.pid)
            await eventually(lambda: "this run is dropped" in sleeper.output.read_text(), "its result is refused")
            assert (await site.c.client.get(task_id)).result["status"] == "working"
            gate.touch()
            done = await site.c.client.until(task_id, "completed")
            assert done["result"]["structuredContent"]["token"] == after.token != late.token


async def test_another_replica_goes_on_where_one_was_killed_and_one_that_comes_back_knows_it_all(site: Site) -> None:
    options = ["--no-worker"]
    store = site.cluster.url(site.database)
    async with attended(await start_replica(site.folder, store, *options)) as doomed:
        task_id = await doomed.client.start("one_question", {"label": "orphan"})
        await doomed.client.until(task_id, "input_required")
        await doomed.server.kill()
    await site.b.client.update(task_id, accept("Ada"))
    async with attended(await start_replica(site.folder, store, *options)) as back:
        done = await back.client.until(task_id, "completed")
    assert done["result"]["structuredContent"]["answers"] == {"name": "Ada"}
    held = await asyncio.to_thread(sessions, site.cluster, site.database)
    assert held == [site.a.server.pid]
