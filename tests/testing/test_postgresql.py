"""The private PostgreSQL server: what can be done to it, and that nothing of it stays."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from perdure.store.postgres import PostgresStore
from perdure.testing.postgresql import Bouncer, Cluster, ProgramFailed, ProgramMissing, guard, programs
from perdure.testing.postgresql.scratch import Scratch
from tests.support import PATIENCE, eventually

OWNER = """
import sys
from perdure.testing.postgresql import Cluster

cluster = Cluster(durable=False)
cluster.start()
cluster.pause()
print(cluster.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Cluster]:
    with Cluster(durable=False, settings={"synchronous_commit": "on"}) as cluster:
        yield cluster


@pytest.fixture
def cluster(made: Cluster) -> Iterator[Cluster]:
    """A server that a test may do anything to."""
    yield made
    made.resume()
    if not made.running:
        made.start()


async def connected(url: str) -> asyncpg.Connection:
    return await asyncpg.connect(url, timeout=PATIENCE, statement_cache_size=0)


def test_what_was_committed_outlives_an_immediate_stop_if_it_is_durable() -> None:
    with Cluster() as durable:
        url = durable.url()
        durable.sql("CREATE TABLE kept AS SELECT 1 AS number")
        durable.restart("immediate")
        assert durable.sql("SELECT * FROM kept") == "1"
        assert "not properly shut down" in durable.log_tail()
        assert durable.url() == url


def test_a_database_can_be_copied_replaced_and_dropped(cluster: Cluster) -> None:
    cluster.create_database("original")
    cluster.sql("CREATE TABLE here (number int)", "original")
    cluster.create_database('a "copy"', "original")
    assert cluster.sql("SELECT count(*) FROM here", 'a "copy"') == "0"
    cluster.create_database("other", instead_of='a "copy"')
    cluster.drop_database("original")
    assert cluster.sql("SELECT datname FROM pg_database WHERE NOT datistemplate ORDER BY 1") == "other\npostgres"


async def test_a_store_that_is_made_can_be_used_at_once_also_where_a_loop_runs(cluster: Cluster) -> None:
    store = PostgresStore(cluster.create_store("mine"))
    await store.open()
    await store.close()
    cluster.drop_database("mine")


def test_a_failing_statement_says_why_and_stops_the_rest(cluster: Cluster) -> None:
    with pytest.raises(ProgramFailed, match='relation "nowhere" does not exist'):
        cluster.sql("SELECT * FROM nowhere; CREATE TABLE never (number int)")
    assert cluster.sql("SELECT to_regclass('never') IS NULL") == "t"


async def test_a_paused_server_answers_once_it_is_resumed(cluster: Cluster) -> None:
    connection = await connected(cluster.url())
    cluster.pause()
    asked = asyncio.create_task(connection.fetchval("SELECT 1"))
    await asyncio.wait([asked], timeout=0.2)
    assert not asked.done()
    assert len(cluster.pids()) > 2
    cluster.resume()
    async with asyncio.timeout(PATIENCE):
        assert await asked == 1
        await connection.close()


async def test_connections_can_be_ended(cluster: Cluster) -> None:
    mine, other = await connected(cluster.url()), await connected(cluster.url("template1"))
    assert cluster.terminate_backends("datname = 'template1'") == 1
    await eventually(other.is_closed, "the connection is closed")
    assert not mine.is_closed()
    await mine.close()


def test_a_standby_follows_is_read_only_and_takes_over(cluster: Cluster) -> None:
    cluster.sql("CREATE TABLE followed AS SELECT 7 AS number")
    with closing(cluster.standby()) as standby:
        standby.start()
        assert standby.sql("SELECT * FROM followed") == "7"
        with pytest.raises(ProgramFailed, match="read-only"):
            standby.sql("DELETE FROM followed")
        cluster.stop("immediate")
        standby.promote()
        assert cluster.url(also=standby).endswith(f"@127.0.0.1:{cluster.port},127.0.0.1:{standby.port}/postgres")
        standby.sql("DELETE FROM followed")


def test_a_server_that_does_not_come_up_says_why(cluster: Cluster) -> None:
    configuration = cluster.data / "postgresql.conf"
    right = configuration.read_text()
    cluster.stop()
    configuration.write_text(right + "max_connections = many\n")
    try:
        with pytest.raises(ProgramFailed, match='"max_connections": "many"'):
            cluster.start()
    finally:
        configuration.write_text(right)
    with pytest.raises(ProgramFailed, match="not running"):
        cluster.pause()


def test_a_port_that_was_taken_meanwhile_is_given_up() -> None:
    cluster = Cluster(durable=False)
    with closing(cluster), socket.create_server(("127.0.0.1", cluster.port)) as thief:
        cluster.start()
        assert cluster.port != thief.getsockname()[1]
        assert cluster.sql("SELECT current_setting('fsync')") == "off"
    assert not cluster.folder.exists()
    assert not cluster.running


async def test_a_server_dies_with_its_owner_even_while_it_is_paused() -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    folder = (await owner.stdout.readline()).decode().strip()
    assert guard.processes(folder)
    os.kill(owner.pid, signal.SIGKILL)
    await owner.wait()
    await eventually(lambda: not Path(folder).exists(), "the folder is removed")
    assert not guard.processes(folder)


def test_a_folder_whose_guard_is_dead_is_cleaned_up_all_the_same() -> None:
    scratch = Scratch(None, signal.SIGKILL)
    sleeper = scratch.spawn(["sleep", "600"], scratch.path / "log")
    scratch.guard.kill()
    scratch.guard.wait()
    scratch.close()
    assert sleeper.wait() == -signal.SIGKILL
    assert not scratch.path.exists()
    scratch.close()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ValueError, match="is not empty"):
        Cluster(tmp_path)
    assert (tmp_path / "precious").exists()


def test_a_machine_without_the_programs_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_DEBIAN", tmp_path)
    with pytest.raises(ProgramMissing, match="apt-get install postgresql"):
        Cluster()


async def test_each_database_of_the_fixture_is_migrated_and_new(database: str, empty_database: str) -> None:
    for url, tables in ((database, 1), (empty_database, 0)):
        connection = await connected(url)
        assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE tablename = 'session'") == tables
        await connection.close()


async def test_a_pooler_shares_a_backend_among_its_clients(empty_database: str, pgbouncer: Bouncer) -> None:
    url = pgbouncer.through(empty_database)
    assert f"listen_port={empty_database.rpartition(':')[2].partition('/')[0]}" in url
    clients = [await connected(url.partition("?")[0]) for _ in range(2)]
    first, second = [await client.fetchval("SELECT pg_backend_pid()") for client in clients]
    assert first == second
    for client in clients:
        await client.close()
