"""The database goes away and comes back, under a server and a worker that are processes of their own.

Meanwhile clients hear at once that they may try again; the worker keeps what it runs. Then everything goes on by
itself: no task is lost, none is done twice. The log says when it began and when it was over, and holds no password.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from perdure.testing.postgresql import Cluster
from tests.acceptance.replicas import FOUND, LOST, Replica, attended, migrated, start_replica, worker
from tests.acceptance.support import Server, effect, effects
from tests.support import PATIENCE, eventually
from tests.wire.envelopes import JSON
from tests.wire.support import Reply

UNAVAILABLE: Final = -32000
HANGING: Final = 10.0
"""Seconds within which a client has its answer: 4 by design, and more on a busy machine."""
APP_ROLE: Final = "tasks_app"
PASSWORD: Final = "xyzzyplugh"
GRANTS: Final = f"""
    CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{PASSWORD}';
    GRANT USAGE ON SCHEMA perdure TO {APP_ROLE};
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {APP_ROLE};
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA perdure TO {APP_ROLE};
"""


@dataclass
class Site:
    folder: Path
    cluster: Cluster
    server: Replica
    worker: Server
    parked: str
    """A task that asks something."""

    @property
    def logs(self) -> list[str]:
        return [self.server.log, self.worker.output.read_text()]

    def said(self, what: str) -> list[int]:
        """How often the server and the worker have said it."""
        return [log.count(what) for log in self.logs]


@asynccontextmanager
async def at_work(folder: Path, cluster: Cluster, store: str) -> AsyncGenerator[Site]:
    async with (
        attended(await start_replica(folder, store, "--no-worker")) as server,
        worker(folder, store) as process,
    ):
        parked = await server.client.start("one_question", {"label": "parked"})
        await server.client.until(parked, "input_required")
        yield Site(folder, cluster, server, process, parked)
        for log in (server.log, process.output.read_text()):
            assert PASSWORD not in log
            assert cluster.password not in log


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    with Cluster(durable=False) as cluster:
        await migrated(cluster, "tasks")
        cluster.sql(GRANTS, "tasks")
        store = cluster.url("tasks", user=APP_ROLE, password=PASSWORD)
        async with at_work(tmp_path_factory.mktemp("losing"), cluster, store) as site:
            yield site


def stop_fast(cluster: Cluster) -> Callable[[], object]:
    cluster.stop("fast")
    return cluster.start


def stop_immediate(cluster: Cluster) -> Callable[[], object]:
    cluster.stop("immediate")
    return cluster.start


def full(cluster: Cluster) -> Callable[[], object]:
    """No connection is to be had any more."""
    cluster.sql(f"ALTER ROLE {APP_ROLE} CONNECTION LIMIT 0")
    cluster.terminate_backends(f"usename = '{APP_ROLE}'")
    return lambda: cluster.sql(f"ALTER ROLE {APP_ROLE} CONNECTION LIMIT -1")


def read_only(cluster: Cluster) -> Callable[[], object]:
    """As a primary that has become a standby, or is out of disk space."""
    cluster.sql("ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()")
    return lambda: cluster.sql("ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()")


def hang(cluster: Cluster) -> Callable[[], object]:
    cluster.pause()
    return cluster.resume


def refused(reply: Reply) -> None:
    """A JSON-RPC error that says that the same request may succeed later."""
    assert (reply.status, reply.code) == (200, UNAVAILABLE), reply.raw
    assert reply.error["data"]["retryAfterMs"] > 0


async def is_away(site: Site) -> list[float]:
    """That every method is refused, and how long each took to say so. What became of the refused is open."""
    client, took = site.server.client, list[float]()
    task_id = site.parked

    async def away() -> bool:
        began = time.monotonic()
        reply = await client.get(task_id)
        if "error" not in reply.body:
            return False
        took.append(time.monotonic() - began)
        refused(reply)
        return True

    await eventually(away, "the database is gone")
    for ask in (
        lambda: client.call("short", {"label": "meanwhile"}),
        lambda: client.get(task_id),
        lambda: client.update(task_id, {"name": {"action": "accept", "content": {"text": "Ada"}}}),
        lambda: client.cancel(task_id),
    ):
        began = time.monotonic()
        refused(await ask())
        took.append(time.monotonic() - began)
    return took


async def goes_on(site: Site, *task_ids: str) -> None:
    """Each task comes to its end, in the one run that it had; and new ones are done."""
    for task_id in task_ids:
        done = await until(site, task_id)
        (start,), (end,) = effects(site.folder, task_id, "start"), effects(site.folder, task_id, "end")
        assert done["result"]["structuredContent"]["token"] == start.token == end.token
        assert start.attempt == 1
    await until(site, await started(site))


async def until(site: Site, task_id: str) -> JSON:
    """As `Client.until`, through whatever still fails."""
    found: list[JSON] = []

    async def completed() -> bool:
        body = (await site.server.client.get(task_id)).body
        if "result" in body and body["result"]["status"] == "completed":
            found.append(body["result"])
        return bool(found)

    await eventually(completed, "it is completed")
    return found[0]


@contextmanager
def said_once(site: Site) -> Generator[None]:
    """Each process says in one line that the database is lost, and in another one that it is back."""
    before = site.said(LOST), site.said(FOUND)
    yield
    assert [now - then for now, then in zip(site.said(LOST), before[0], strict=True)] == [1, 1], site.logs
    assert [now - then for now, then in zip(site.said(FOUND), before[1], strict=True)] == [1, 1], site.logs


@pytest.mark.parametrize("lose", [stop_fast, stop_immediate, full, read_only])
async def test_clients_are_told_to_try_again_and_what_runs_runs_on(
    site: Site, lose: Callable[[Cluster], Callable[[], object]]
) -> None:
    gate = site.folder / lose.__name__
    client = site.server.client
    task_id = await client.start("waiting", {"label": "all through it", "gate": str(gate)})
    await effect(site.folder, task_id, "start")
    with said_once(site):
        give_back = await asyncio.to_thread(lose, site.cluster)
        try:
            took = await is_away(site) if lose is not read_only else []
            gate.touch()
            await effect(site.folder, task_id, "end")  # and can't be stored
            await eventually(lambda: min(site.said(LOST)) > min(site.said(FOUND)), "both know")
        finally:
            await asyncio.to_thread(give_back)
        await goes_on(site, task_id)
    print(lose.__name__, [f"{each * 1000:.0f} ms" for each in took])
    assert all(each < HANGING for each in took), took


async def test_connections_that_are_ended_cost_nothing_but_an_error_at_most(site: Site) -> None:
    gate = site.folder / "ended"
    client = site.server.client
    task_id = await client.start("waiting", {"label": "all through it", "gate": str(gate)})
    await effect(site.folder, task_id, "start")
    for _ in range(3):
        await asyncio.to_thread(site.cluster.terminate_backends, f"usename = '{APP_ROLE}'")
        await until(site, await started(site))
    gate.touch()
    await goes_on(site, task_id)


async def started(site: Site) -> str:
    """A short task, of a client that tries again when it is told to."""
    async with asyncio.timeout(PATIENCE):
        while "result" not in (reply := await site.server.client.call("short", {"label": "at once"})).body:
            refused(reply)
    return reply.result["taskId"]


async def test_a_hint_comes_though_the_connection_for_hints_was_ended_just_before(site: Site) -> None:
    client = site.server.client
    before = site.said(LOST)
    listening = f"usename = '{APP_ROLE}' AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')"

    async def ended() -> bool:
        return await asyncio.to_thread(site.cluster.terminate_backends, listening) == 2

    for _ in range(3):
        task_id = await client.start("cancellable", {"label": "stop", "seconds": 3600, "stubborn": False})
        await effect(site.folder, task_id, "start")
        await eventually(ended, "the connections for hints are ended")
        asked = time.monotonic()
        await client.cancel(task_id)
        await effect(site.folder, task_id, "told to stop")
        assert time.monotonic() - asked < 5, "half of what the heartbeat takes"
        assert (await client.until(task_id))["status"] == "cancelled"
    assert site.said(LOST) == before


async def test_a_database_that_hangs_keeps_no_client_waiting_and_goes_on_when_it_does(site: Site) -> None:
    """For longer than a batch may take, so that all connections are given up meanwhile."""
    gate = site.folder / "hung"
    client = site.server.client
    task_id = await client.start("waiting", {"label": "all through it", "gate": str(gate)})
    await effect(site.folder, task_id, "start")
    with said_once(site):
        began = time.monotonic()
        await asyncio.to_thread(site.cluster.pause)
        try:
            took = await is_away(site)
            gate.touch()
            await effect(site.folder, task_id, "end")
            await asyncio.sleep(max(0.0, 14 - (time.monotonic() - began)))
        finally:
            await asyncio.to_thread(site.cluster.resume)
        await goes_on(site, task_id)
    print("hang", [f"{each:.2f} s" for each in took])
    assert all(each < HANGING for each in took), took


@pytest.mark.timeout(180)  # two servers of its own, of which each recovers, on a machine that others use
async def test_a_standby_takes_over_and_the_primary_that_comes_back_read_only_is_passed_over(tmp_path: Path) -> None:
    with Cluster(durable=False) as primary:
        await migrated(primary, "tasks")
        with primary.standby() as standby:
            async with at_work(tmp_path, primary, primary.url("tasks", also=standby)) as site:
                gate, client = tmp_path / "gate", site.server.client
                task_id = await client.start("waiting", {"label": "all through it", "gate": str(gate)})
                await effect(tmp_path, task_id, "start")
                await asyncio.to_thread(in_step, primary, standby)
                with said_once(site):
                    await asyncio.to_thread(primary.stop, "immediate")
                    await is_away(site)
                    await eventually(lambda: min(site.said(LOST)) > 0, "both know")
                    await asyncio.to_thread(standby.promote)
                    gate.touch()
                    await goes_on(site, task_id)
                (primary.data / "postgresql.auto.conf").write_text("default_transaction_read_only = on\n")
                await asyncio.to_thread(primary.start)
                await asyncio.to_thread(standby.terminate_backends)
                await goes_on(site)
                known = await asyncio.to_thread(primary.sql, "SELECT count(*) FROM perdure.task", "tasks")
                assert known == "2", "it has none of the new ones"


def in_step(primary: Cluster, standby: Cluster) -> None:
    """Wait until the standby has all that was committed."""
    at = primary.sql("SELECT pg_current_wal_lsn()")
    deadline = time.monotonic() + PATIENCE
    while standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{at}'") != "t":
        assert time.monotonic() < deadline, "the standby does not follow"
        time.sleep(0.01)
