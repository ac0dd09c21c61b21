"""What is said when a database can't be used, each time by a real server that refuses; and what passes by itself."""

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from perdure.store.postgres import faults, url
from perdure.store.postgres.url import Connection
from perdure.testing.postgresql import Bouncer, Cluster
from tests.store.postgres.support import PATIENCE, SECRET, refusal
from tests.support import eventually

PASSWORD = "refuses the password, or there is none: correct it in the URL, in PGPASSWORD or in the password file"
READ_ONLY = (
    "is read-only, as a standby is, or a database with default_transaction_read_only: name the primary, or several "
    "hosts (host1,host2) that it is one of"
)
FULL = (
    "takes no more connections ({}): start fewer processes, raise the server's max_connections or the user's "
    "CONNECTION LIMIT, or put PgBouncer in front"
)
POOLER = "is behind a pooler ({}): add listen_host= and listen_port= to the URL, which say where the server itself is"
MISSING = "names a database that does not exist: create it (CREATE DATABASE), or name another"
UNTRUSTED = (
    "shows a certificate that is not to be trusted ({}): name its authority's by sslrootcert=, and the host as the "
    "certificate does"
)


@pytest.fixture
async def connection(postgres: Cluster) -> AsyncIterator[Connection]:
    made = await url.parse(postgres.url()).connect_directly(PATIENCE)
    yield made
    made.terminate()


# -- who is let in -----------------------------------------------------------------------------------------------------


async def test_a_wrong_password(strict: Cluster) -> None:
    assert await refusal(strict.url(password=SECRET)) == PASSWORD


async def test_no_password(strict: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "none"))
    assert await refusal(strict.url(password="")) == PASSWORD


async def test_a_user_whom_the_server_turns_away(strict: Cluster) -> None:
    strict.sql("CREATE ROLE ghost PASSWORD 'x'")
    said = await refusal(strict.url(user="ghost", password="x"))
    assert said == (
        'does not let this user in (role "ghost" is not permitted to log in): correct the user, or allow it in the '
        "server's pg_hba.conf"
    )


async def test_a_database_that_does_not_exist(strict: Cluster) -> None:
    assert await refusal(strict.url("nothing")) == MISSING


async def test_a_user_with_too_many_connections(strict: Cluster) -> None:
    """One of his own: a test that has only just ended may still have a connection of the usual one."""
    text = strict.url("tasks", user="bob", password="hush")
    first = await url.parse(text).connect(PATIENCE)
    assert await refusal(text) == FULL.format('too many connections for role "bob"')
    first.terminate()


async def test_a_server_with_too_many_connections(strict: Cluster) -> None:
    target = url.parse(strict.url())
    made: list[Connection] = []

    async def fill() -> None:
        while True:
            made.append(await target.connect(PATIENCE))

    with pytest.raises(asyncpg.TooManyConnectionsError) as caught:
        await fill()
    assert len(made) <= 6
    assert faults.passes(caught.value)
    assert str(faults.unusable(caught.value, target)).endswith(FULL.format("sorry, too many clients already"))
    for connection in made:
        connection.terminate()
    await eventually(lambda: _answers(strict), "the server takes connections again")


async def _answers(cluster: Cluster) -> bool:
    try:
        (await url.parse(cluster.url()).connect(PATIENCE)).terminate()
    except asyncpg.TooManyConnectionsError:
        return False
    return True


# -- what is there -----------------------------------------------------------------------------------------------------


async def test_nobody_listens_at_the_port() -> None:
    said = await refusal(f"postgresql://ada:{SECRET}@127.0.0.1:1/tasks")
    assert said == "does not answer (Connect call failed ('127.0.0.1', 1)): start the server, or correct host and port"


async def test_there_is_no_such_socket(tmp_path: Path) -> None:
    said = await refusal(f"postgresql://ada:{SECRET}@/tasks?host={tmp_path}")
    assert said == "does not answer (No such file or directory): start the server, or correct host and port"


async def test_a_host_that_has_no_address() -> None:
    said = await refusal(f"postgresql://ada:{SECRET}@nowhere.invalid/tasks")
    assert said.startswith("has a host that can't be found (")
    assert said.endswith("): correct it, or look to the name server")


async def test_a_server_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = await refusal(f"postgresql://ada:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/tasks", within=0.2)
    assert said == "does not answer in time: correct host and port, or look for a firewall or a server that hangs"


async def test_a_server_that_hangs_up() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        said = await refusal(f"postgresql://ada:{SECRET}@127.0.0.1:{port}/tasks?sslmode=disable")
    assert said.startswith(("does not answer (", "can't be used: "))


async def test_a_standby(strict: Cluster) -> None:
    with strict.standby() as standby:
        assert await refusal(standby.url()) == READ_ONLY
        assert await refusal(standby.url(target_session_attrs="any")) == READ_ONLY


async def test_a_database_that_is_read_only(strict: Cluster) -> None:
    strict.sql("CREATE DATABASE sealed; ALTER DATABASE sealed SET default_transaction_read_only = on")
    assert await refusal(strict.url("sealed")) == READ_ONLY
    assert await refusal(strict.url("sealed", target_session_attrs="any")) == READ_ONLY


# -- TLS ---------------------------------------------------------------------------------------------------------------


async def test_tls_that_the_server_does_not_offer(strict: Cluster) -> None:
    said = await refusal(strict.url(sslmode="require"))
    assert said == "offers no TLS, and sslmode= asks for it: switch ssl on in the server, or write sslmode=prefer"


async def test_a_certificate_that_nobody_vouches_for(tls: Cluster, tmp_path: Path) -> None:
    mine, theirs = tls.data / "server.crt", certificate(tmp_path, "other")
    assert "has no tables" in await refusal(tls.url(sslmode="verify-ca", sslrootcert=str(mine)))
    said = await refusal(tls.url(sslmode="verify-ca", sslrootcert=str(theirs)))
    assert said == UNTRUSTED.format("self-signed certificate")
    said = await refusal(tls.url(sslmode="verify-full", sslrootcert=str(mine)))
    assert said == UNTRUSTED.format("IP address mismatch, certificate is not valid for '127.0.0.1'")


async def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    said = await refusal(f"postgresql://ada@127.0.0.1/tasks?sslmode=verify-ca&sslrootcert={tmp_path / 'ca.crt'}")
    assert said == f"can't be used: there is no file sslrootcert={tmp_path / 'ca.crt'}; correct the path"


async def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("this is no certificate")
    said = await refusal(f"postgresql://ada@127.0.0.1/tasks?sslmode=verify-ca&sslrootcert={tmp_path / 'ca.crt'}")
    assert said.startswith("fails at TLS (")
    assert said.endswith("): check sslmode=, sslrootcert=, sslcert= and sslkey=")


def test_a_key_that_may_not_be_read() -> None:
    # Root may read everything, so the error is made here.
    said = faults.unusable(PermissionError(13, "Permission denied"), url.parse("postgresql://db/tasks"))
    assert "may not read its certificate or key" in str(said)


# -- options -----------------------------------------------------------------------------------------------------------


async def test_an_option_that_nobody_knows(postgres: Cluster) -> None:
    said = await refusal(postgres.url(pasword=SECRET))
    assert said == (
        'does not know an option of the URL (unrecognized configuration parameter "pasword"): correct it, or leave it '
        "out"
    )


async def test_a_value_that_the_server_does_not_take(postgres: Cluster) -> None:
    said = await refusal(postgres.url(statement_timeout="soon"))
    assert said == (
        'does not take an option of the URL (invalid value for parameter "statement_timeout": "soon"): correct it, or '
        "leave it out"
    )


async def test_a_value_that_the_driver_does_not_take(postgres: Cluster) -> None:
    said = await refusal(postgres.url(sslmode="sometimes"))
    assert said == (
        "is no URL that the driver can use (`sslmode` parameter must be one of: disable, allow, prefer, require, "
        "verify-ca, verify-full): correct it, or the PG… variables"
    )


async def test_a_variable_that_the_driver_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "here")
    said = await refusal(f"postgresql://ada:{SECRET}@127.0.0.1/tasks")
    assert said.startswith("is no URL that the driver can use (")


# -- poolers -----------------------------------------------------------------------------------------------------------


async def test_a_pooler_that_is_not_said_to_be_one(database: str, pgbouncer: Bouncer) -> None:
    said = await refusal(pgbouncer.through(database).partition("?")[0])
    assert said == POOLER.format("unsupported startup parameter: statement_timeout")
    assert await refusal(pgbouncer.through(database)) == ""


async def test_what_a_pooler_refuses_is_named_like_what_a_server_refuses(postgres: Cluster, pgbouncer: Bouncer) -> None:
    through = pgbouncer.through(postgres.url("nothing"))
    assert await refusal(through) == MISSING
    assert await refusal(through.replace(postgres.password, SECRET)) == PASSWORD


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("no more connections allowed (max_client_conn)", FULL.format("no more connections allowed (max_client_conn)")),
        ("query_wait_timeout", "can't be used: query_wait_timeout"),
    ],
)
def test_a_pooler_that_is_full_passes(words: str, said: str) -> None:
    error = asyncpg.ProtocolViolationError(words)
    target = url.parse("postgresql://pool/tasks?listen_host=db")
    assert faults.passes(error)
    assert str(faults.unusable(error, target)) == f"{target.shown} {said}"


# -- what passes -------------------------------------------------------------------------------------------------------

Deed = Callable[[Cluster, Connection], Awaitable[object]]


async def stays_too_long(_cluster: Cluster, connection: Connection) -> None:
    await connection.execute("SET statement_timeout = '10ms'; SELECT pg_sleep(60)")


async def waits_for_a_lock(cluster: Cluster, connection: Connection) -> None:
    other = await url.parse(cluster.url()).connect_directly(PATIENCE)
    try:
        await other.execute("SELECT pg_advisory_lock(7)")
        await connection.execute("SET lock_timeout = '10ms'; SELECT pg_advisory_lock(7)")
    finally:
        other.terminate()


async def is_cut_off(cluster: Cluster, connection: Connection) -> None:
    pid = connection.get_server_pid()
    await asyncio.to_thread(cluster.sql, f"SELECT pg_terminate_backend({pid}, 10000)")
    await connection.execute("SELECT 1")


async def uses_what_is_closed(_cluster: Cluster, connection: Connection) -> None:
    await connection.close()
    await connection.execute("SELECT 1")


async def is_idle_for_too_long(_cluster: Cluster, connection: Connection) -> None:
    await connection.execute("SET idle_in_transaction_session_timeout = '1ms'; BEGIN")
    await eventually(connection.is_closed, "the server has cut it off")
    await connection.execute("SELECT 1")


async def writes_what_is_read_only(_cluster: Cluster, connection: Connection) -> None:
    await connection.execute("SET default_transaction_read_only = on")
    await connection.execute("CREATE TABLE t (x int)")


async def finds_nobody(_cluster: Cluster, _connection: Connection) -> None:
    await url.parse("postgresql://ada@127.0.0.1:1/tasks").connect(PATIENCE)


@pytest.mark.parametrize(
    "deed",
    [
        stays_too_long,
        waits_for_a_lock,
        is_cut_off,
        uses_what_is_closed,
        is_idle_for_too_long,
        writes_what_is_read_only,
        finds_nobody,
    ],
)
async def test_what_is_over_by_itself_passes(postgres: Cluster, connection: Connection, deed: Deed) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one, is what is asked
        await deed(postgres, connection)
    assert faults.passes(caught.value)
    assert not faults.retriable(caught.value)


async def conflicts(cluster: Cluster, connection: Connection) -> None:
    other = await url.parse(cluster.url()).connect_directly(PATIENCE)
    name = f"conflict_{connection.get_server_pid()}"
    await connection.execute(f"CREATE TABLE {name} AS SELECT 1 AS x")
    try:
        await connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM {name}")
        await other.execute(f"UPDATE {name} SET x = 2")
        await connection.execute(f"UPDATE {name} SET x = 3")
    finally:
        await connection.execute("ROLLBACK")
        await other.execute(f"DROP TABLE {name}")
        other.terminate()


async def has_an_old_plan(cluster: Cluster, connection: Connection) -> None:
    name = f"changing_{connection.get_server_pid()}"
    await connection.execute(f"CREATE TABLE {name} (x int)")
    await connection.fetch(f"SELECT * FROM {name}")
    await connection.execute(f"ALTER TABLE {name} ADD COLUMN y int")
    try:
        async with connection.transaction():
            await connection.fetch(f"SELECT * FROM {name}")
    finally:
        await connection.execute(f"DROP TABLE {name}")


@pytest.mark.parametrize("deed", [conflicts, has_an_old_plan])
async def test_what_lost_against_another_may_be_tried_again_at_once(
    postgres: Cluster, connection: Connection, deed: Deed
) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await deed(postgres, connection)
    assert faults.retriable(caught.value)
    assert faults.passes(caught.value)


def test_a_deadlock_and_a_full_disk_pass() -> None:
    assert faults.retriable(asyncpg.DeadlockDetectedError("deadlock detected"))
    assert faults.passes(asyncpg.DiskFullError("could not extend file"))
    assert not faults.retriable(asyncpg.DiskFullError("could not extend file"))


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InsufficientPrivilegeError("permission denied for table task"),
        asyncpg.InvalidSchemaNameError('schema "perdure" does not exist'),
        asyncpg.UndefinedTableError('relation "perdure.task" does not exist'),
    ],
)
def test_what_an_operator_takes_away_while_work_goes_on_may_come_back(error: BaseException) -> None:
    assert faults.passes(error)
    assert not faults.retriable(error)


def test_a_goodbye_that_was_read_only_in_part_passes() -> None:
    """Between the server's last message and the end of the connection the driver is in a state of its own."""
    error = asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress")
    assert faults.passes(error)
    assert not faults.retriable(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InvalidPasswordError("password authentication failed"),
        asyncpg.UniqueViolationError("duplicate key"),
        asyncpg.UndefinedFunctionError("no such function"),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
        KeyError("x"),
        asyncio.CancelledError(),
    ],
)
def test_a_mistake_does_not_pass(error: BaseException) -> None:
    assert not faults.passes(error)
    assert not faults.retriable(error)


def test_what_is_no_fault_of_the_database_gets_no_words() -> None:
    target = url.parse("postgresql://db/tasks")
    assert faults.unusable(KeyError("x"), target) is None
    assert faults.unusable(asyncio.CancelledError(), target) is None


def test_a_table_that_is_missing_says_what_to_run() -> None:
    target = url.parse("postgresql://db/tasks?user=ada&sslmode=require")
    said = faults.unusable(asyncpg.UndefinedTableError('relation "perdure.task" does not exist'), target)
    assert str(said) == (
        f'{target.shown} lacks a table (relation "perdure.task" does not exist): '
        f"run `perdure migrate '{target.shown}'`"
    )


def test_an_error_with_no_words_is_named_by_its_class() -> None:
    target = url.parse("postgresql://db/tasks")
    assert str(faults.unusable(OSError(), target)).endswith(
        "does not answer (OSError): start the server, or correct host and port"
    )


# -- a server with TLS -------------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> Path:
    """A certificate for `name`, signed by itself, with its key beside it."""
    made = folder / "server.crt"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "9",
    ]
    command += ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run(
        [*command, "-keyout", str(folder / "server.key"), "-out", str(made)], check=True, capture_output=True
    )
    return made


@pytest.fixture
async def tls(strict: Cluster) -> AsyncIterator[Cluster]:
    """The strict server, with a certificate for a host of another name."""
    strict.own(certificate(strict.data, "db.example"))
    strict.own(strict.data / "server.key")
    strict.sql("ALTER SYSTEM SET ssl = on")
    strict.reload()
    await eventually(lambda: offers_tls(strict), "the server offers TLS")
    yield strict
    strict.sql("ALTER SYSTEM SET ssl = off")
    strict.reload()


async def offers_tls(cluster: Cluster) -> bool:
    return "offers no TLS" not in await refusal(cluster.url(sslmode="require"))
