"""What a database must be like, the phases of migrations, and replicas of two releases side by side."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from perdure.domain.errors import StoreUnusable
from perdure.store.migrate import Migration, Phase
from perdure.store.postgres import PostgresUpgrade, schema, url
from perdure.store.postgres.url import Connection, Target
from perdure.testing.postgresql import Bouncer, Cluster
from tests.store.postgres.support import PATIENCE, refusal
from tests.support import eventually

REAL = schema.MIGRATIONS
LAST = len(REAL)

ADDS = Migration(LAST + 1, "adds", ("ALTER TABLE perdure.task ADD COLUMN added text;",))
REMOVES = Migration(LAST + 2, "removes", ("ALTER TABLE perdure.task DROP COLUMN name;",), Phase.POST)
ADDS_MORE = Migration(LAST + 3, "adds_more", ("ALTER TABLE perdure.task ADD COLUMN more text;",))
REMOVES_MORE = Migration(LAST + 4, "removes_more", ("ALTER TABLE perdure.task DROP COLUMN more;",), Phase.POST)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> "Release":
    return Release(monkeypatch)


class Release:
    """Makes this process one of another release: with these migrations on top of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *more: Migration) -> None:
        self._monkeypatch.setattr(schema, "MIGRATIONS", (*REAL, *more))


@asynccontextmanager
async def connected(target: Target) -> AsyncGenerator[Connection]:
    connection = await target.connect_directly(PATIENCE)
    try:
        yield connection
    finally:
        connection.terminate()


async def migrated(text: str, *, post: bool = False) -> list[int]:
    return [migration.number for migration in await PostgresUpgrade(text).apply(post=post)]


async def recorded(text: str) -> list[tuple[int, str, str]]:
    async with connected(url.parse(text)) as connection:
        rows = await connection.fetch("SELECT number, name, phase FROM perdure.migration ORDER BY number")
    return [(row["number"], row["name"], row["phase"]) for row in rows]


# -- the files ---------------------------------------------------------------------------------------------------------


def test_the_numbers_of_the_migrations_run_from_1_without_a_gap_and_their_files_say_the_phase() -> None:
    assert [migration.number for migration in REAL] == list(range(1, LAST + 1))
    folder = Path(schema.__file__).parent / "migrations"
    assert all(re.fullmatch(r"\d{4}_(pre|post)_\w+\.sql", file.name) for file in folder.iterdir())


# -- start-up ----------------------------------------------------------------------------------------------------------


async def test_an_empty_database_is_refused_with_what_to_run(empty_database: str) -> None:
    shown = url.parse(empty_database).shown
    assert await refusal(empty_database) == f"has no tables of Perdure yet: run `perdure migrate {shown}`"


async def test_a_database_that_was_migrated_is_taken(empty_database: str) -> None:
    assert await migrated(empty_database) == [migration.number for migration in REAL]
    assert await refusal(empty_database) == ""
    assert await recorded(empty_database) == [(each.number, each.name, each.phase) for each in REAL]


async def test_a_database_that_lacks_a_pre_migration_is_refused_with_its_name(database: str, release: Release) -> None:
    release(ADDS)
    said = await refusal(database)
    assert said.startswith(f"lacks {LAST + 1:04} adds (pre): run `perdure migrate postgresql://")


async def test_a_post_migration_may_wait_and_is_mentioned(
    database: str, release: Release, caplog: pytest.LogCaptureFixture
) -> None:
    release(ADDS, REMOVES)
    await migrated(database)
    with caplog.at_level(logging.INFO, "perdure.store"):
        assert await refusal(database) == ""
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert "--post`, once no older release runs: " in record.message
    assert record.message.endswith(f"{LAST + 2:04} removes (post)")


async def test_a_replica_goes_on_beside_the_next_release_until_post_migrations_were_applied(
    database: str, release: Release
) -> None:
    release(ADDS, REMOVES)
    assert await migrated(database) == [LAST + 1]
    release()
    assert await refusal(database) == ""
    release(ADDS, REMOVES)
    assert await migrated(database, post=True) == [LAST + 2]
    assert await refusal(database) == ""
    release()
    expected = f"was migrated for newer releases only, by {LAST + 2:04} removes (post): upgrade Perdure"
    assert await refusal(database) == expected
    with pytest.raises(StoreUnusable, match="upgrade Perdure"):
        await migrated(database)


async def test_a_schema_of_that_name_that_is_not_ours_is_refused(empty_database: str) -> None:
    async with connected(url.parse(empty_database)) as connection:
        await connection.execute("CREATE SCHEMA perdure")
        assert "has no tables of Perdure yet" in await refusal(empty_database)
        await connection.execute("CREATE TABLE perdure.invoice (number int)")
        stranger = "has a schema perdure that Perdure did not make: name a database of its own for the task store"
        assert await refusal(empty_database) == stranger
        with pytest.raises(StoreUnusable, match="that Perdure did not make"):
            await migrated(empty_database)
        await connection.execute("CREATE TABLE perdure.migration (version int)")
        assert await refusal(empty_database) == stranger.replace("make:", 'make (column "number" does not exist):')


async def test_a_database_that_cant_hold_every_text_is_refused(postgres: Cluster) -> None:
    postgres.sql("CREATE DATABASE ascii ENCODING 'SQL_ASCII' TEMPLATE template0")
    assert await refusal(postgres.url("ascii")) == (
        "has the encoding SQL_ASCII, which can't hold every text: make a database with CREATE DATABASE … ENCODING "
        "'UTF8' TEMPLATE template0"
    )


async def test_a_server_that_forgets_commits_is_warned_of(database: str, caplog: pytest.LogCaptureFixture) -> None:
    assert await refusal(f"{database}?synchronous_commit=off") == ""
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "synchronous_commit off: tasks that were accepted are lost" in caplog.text


async def test_a_server_that_is_too_old_is_refused(postgres: Cluster) -> None:
    async with aged(postgres.port, b"13") as port:
        said = await refusal(postgres.url(sslmode="disable").replace(f":{postgres.port}/", f":{port}/"))
    assert said == "is PostgreSQL 13, which is too old: Perdure needs 14 or newer"


@asynccontextmanager
async def aged(port: int, version: bytes) -> AsyncGenerator[int]:
    """A port where that server calls itself one of another version."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, there_writer, b""))
            group.create_task(pump(there_reader, writer, version))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: bytes) -> None:
    try:
        while chunk := await reader.read(65_536):
            writer.write(re.sub(rb"(server_version\0)\d\d", rb"\g<1>" + version, chunk) if version else chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


# -- rights ------------------------------------------------------------------------------------------------------------

GRANTS = (
    "GRANT USAGE ON SCHEMA perdure TO app; "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO app; "
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA perdure TO app"
)


@pytest.fixture(scope="module")
def app(postgres: Cluster) -> str:
    """A user who owns nothing, with its password."""
    postgres.sql("CREATE ROLE app LOGIN PASSWORD 'app'")
    return "app:app"


def as_app(text: str, cluster: Cluster, app: str) -> str:
    return text.replace(f"postgres:{cluster.password}@", f"{app}@")


async def test_a_user_who_may_not_use_the_tables_is_refused_with_the_grants(
    database: str, postgres: Cluster, app: str
) -> None:
    mine = as_app(database, postgres, app)
    async with connected(url.parse(database)) as connection:
        said = await refusal(mine)
        assert said.startswith("gives this user too few rights (permission denied for schema perdure): GRANT USAGE ON")
        await connection.execute(GRANTS)
        assert await refusal(mine) == ""
        await connection.execute(
            "REVOKE USAGE ON SEQUENCE perdure.fence FROM app; REVOKE DELETE ON perdure.run FROM app"
        )
        said = await refusal(mine)
        assert said.startswith("gives this user too few rights (to fence, run): GRANT SELECT, INSERT, UPDATE, DELETE")


async def test_a_user_needs_no_rights_to_what_only_a_newer_release_uses(
    database: str, postgres: Cluster, app: str, release: Release
) -> None:
    async with connected(url.parse(database)) as connection:
        await connection.execute(GRANTS)
    release(Migration(LAST + 1, "table", ("CREATE TABLE perdure.unheard_of (x int);",)))
    await migrated(database)
    assert "(to unheard_of)" in await refusal(as_app(database, postgres, app))
    release()
    assert await refusal(as_app(database, postgres, app)) == ""


async def test_a_user_who_may_not_make_a_schema_is_told_so(empty_database: str, postgres: Cluster, app: str) -> None:
    upgrade = PostgresUpgrade(as_app(empty_database, postgres, app))
    with pytest.raises(StoreUnusable) as caught:
        await upgrade.apply(post=False)
    name = empty_database.rpartition("/")[2]
    assert str(caught.value) == (
        f"{upgrade.shown} gives this user too few rights to change its tables (permission denied for database {name}): "
        "GRANT CREATE ON DATABASE to it, or migrate as the user who owns the schema perdure"
    )


async def test_a_schema_that_was_made_for_a_user_is_enough(empty_database: str, postgres: Cluster, app: str) -> None:
    async with connected(url.parse(empty_database)) as connection:
        await connection.execute("CREATE SCHEMA perdure AUTHORIZATION app")
    mine = as_app(empty_database, postgres, app)
    assert await migrated(mine) == [migration.number for migration in REAL]
    assert await refusal(mine) == ""


# -- applying ----------------------------------------------------------------------------------------------------------


async def test_post_migrations_are_applied_before_a_pre_migration_that_follows_them(
    database: str, release: Release
) -> None:
    release(ADDS, REMOVES, ADDS_MORE, REMOVES_MORE)
    assert await migrated(database) == [LAST + 1, LAST + 2, LAST + 3]
    assert await PostgresUpgrade(database).pending() == (REMOVES_MORE,)
    assert await migrated(database) == []
    assert await migrated(database, post=True) == [LAST + 4]
    assert await migrated(database, post=True) == []


async def test_a_migration_that_fails_leaves_nothing_behind(database: str, release: Release) -> None:
    release(ADDS, Migration(LAST + 2, "breaks", ("SELECT 1 / 0;",)))
    with pytest.raises(StoreUnusable, match="can't be used: division by zero"):
        await migrated(database)
    release(ADDS)
    assert await migrated(database) == [LAST + 1]


async def test_of_many_that_migrate_at_once_one_does_it(empty_database: str) -> None:
    found = await asyncio.gather(*(migrated(empty_database) for _ in range(8)))
    assert sorted(found) == [[]] * 7 + [[migration.number for migration in REAL]]


async def test_a_migration_does_not_queue_for_long_behind_who_uses_a_table(
    database: str, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(ADDS)
    monkeypatch.setattr(schema, "_LOCK_TIMEOUT", "SET LOCAL lock_timeout = '50ms'")
    async with connected(url.parse(database)) as connection, connection.transaction():
        await connection.execute("LOCK TABLE perdure.task IN SHARE MODE")
        with pytest.raises(StoreUnusable) as caught:
            await migrated(database)
    assert "is in use, and a lock was not to be had in time" in str(caught.value)
    assert await migrated(database) == [LAST + 1]


async def test_a_migration_goes_past_a_pooler(empty_database: str, pgbouncer: Bouncer) -> None:
    through = pgbouncer.through(empty_database)
    assert await migrated(through) == [migration.number for migration in REAL]
    assert await refusal(through) == ""


async def test_a_database_that_cant_be_reached_is_told_in_one_line() -> None:
    with pytest.raises(StoreUnusable, match="does not answer"):
        await PostgresUpgrade("postgresql://ada@127.0.0.1:1/tasks").pending()


# -- what is made without locks, beforehand ----------------------------------------------------------------------------


async def test_the_index_of_owners_that_was_made_before_while_others_wrote_is_left_as_it_is(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", REAL[:1])
        await migrated(empty_database)
    (statement,) = REAL[1].statements
    named = "SELECT 'perdure.task_owned'::regclass::oid"
    async with connected(url.parse(empty_database)) as connection:
        await connection.execute(statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY"))
        before = await connection.fetchval(named)
        assert await migrated(empty_database) == [migration.number for migration in REAL[1:]]
        assert await connection.fetchval(named) == before
    assert await refusal(empty_database) == ""


async def broken_off(text: str, statement: str) -> None:
    """An index is being made while somebody has the table, for whom it has to wait; then it is cancelled."""
    target = url.parse(text)
    async with connected(target) as other, connected(target) as connection, other.transaction():
        await other.execute("LOCK TABLE perdure.task IN ROW EXCLUSIVE MODE")
        making = asyncio.create_task(
            connection.execute(statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY"), timeout=PATIENCE)
        )

        async def begun() -> bool:
            return await other.fetchval("SELECT EXISTS (SELECT FROM pg_index WHERE NOT indisvalid)")

        await eventually(begun, "it was not begun")
        await other.execute("SELECT pg_cancel_backend($1)", connection.get_server_pid())
        with pytest.raises(asyncpg.QueryCanceledError):
            await making


async def invalid(text: str) -> list[str]:
    async with connected(url.parse(text)) as connection:
        rows = await connection.fetch("SELECT indexrelid::regclass::text AS name FROM pg_index WHERE NOT indisvalid")
    return [row["name"] for row in rows]


async def test_an_index_whose_making_was_broken_off_is_made_anew_by_the_migration_that_would_have_made_it(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To IF NOT EXISTS it is one, and nothing ever uses it."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", REAL[:1])
        await migrated(empty_database)
    await broken_off(empty_database, *REAL[1].statements)
    assert await invalid(empty_database) == ["perdure.task_owned"]
    assert await migrated(empty_database) == [migration.number for migration in REAL[1:]]
    assert await invalid(empty_database) == []
    assert "made anew what had not been made to its end: task_owned" in caplog.text


@pytest.mark.parametrize("how", ["apply", "script"])
async def test_one_that_a_migration_took_for_an_index_is_warned_of_and_made_anew_by_the_next_however_that_is_run(
    database: str, postgres: Cluster, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    async with connected(url.parse(database)) as connection:
        await connection.execute("DROP INDEX perdure.task_open")
    await broken_off(database, *REAL[2].statements)
    assert await refusal(database) == ""
    assert "are not used: task_open; run `perdure migrate" in caplog.text
    if how == "apply":
        assert await migrated(database) == []
    else:
        script = await PostgresUpgrade(database).script(post=False)
        await asyncio.to_thread(postgres.sql, script, database.rpartition("/")[2])
    assert await invalid(database) == []
    assert await PostgresUpgrade(database).script(post=False) == ""


# -- as a script -------------------------------------------------------------------------------------------------------


async def test_psql_can_run_the_script_instead(empty_database: str, postgres: Cluster) -> None:
    script = await PostgresUpgrade(empty_database).script(post=False)
    name = empty_database.rpartition("/")[2]
    await asyncio.to_thread(postgres.sql, script, name)
    assert await refusal(empty_database) == ""
    assert await recorded(empty_database) == [(each.number, each.name, each.phase) for each in REAL]
    assert await PostgresUpgrade(empty_database).script(post=True) == ""


async def test_a_script_has_what_is_due_only(database: str, release: Release) -> None:
    release(ADDS, REMOVES)
    upgrade = PostgresUpgrade(database)
    script = await upgrade.script(post=False)
    assert "CREATE" not in script
    assert "ADD COLUMN added" in script
    assert "DROP COLUMN name" not in script
    assert "DROP COLUMN name" in await upgrade.script(post=True)


async def test_a_check_leaves_no_transaction_open(database: str) -> None:
    target = url.parse(database)
    async with connected(target) as connection:
        await schema.check(connection, target)
        assert not connection.is_in_transaction()
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute("SAVEPOINT s")
