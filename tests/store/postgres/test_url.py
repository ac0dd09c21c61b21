"""PostgreSQL URLs: what is understood, what is refused, and that a password is never shown."""

import socket
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest

from perdure.domain.errors import StoreUnusable
from perdure.store.postgres import url
from perdure.store.postgres.url import BEGIN, Connection, Target, parse
from perdure.testing.postgresql import Bouncer, Cluster
from tests.store.postgres.support import PATIENCE, SECRET, refusal

PASSWORD = "sword:fi@s/h"
"""Of the strict server's user ada."""


async def answer(connection: Connection, query: str) -> object:
    try:
        return await connection.fetchval(query)
    finally:
        connection.terminate()


async def setting(target: Target, name: str) -> object:
    return await answer(await target.connect(PATIENCE), f"SHOW {name}")


# -- what is shown -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql://ada:xyzzyplugh@db/tasks", "postgresql://ada@db/tasks"),
        ("postgres://ada:xyzzyplugh@db:5433,db2:5434/tasks", "postgres://ada@db:5433,db2:5434/tasks"),
        ("postgresql://:xyzzyplugh@db/tasks", "postgresql://@db/tasks"),
        ("postgresql://db/tasks?user=ada&password=xyzzyplugh", "postgresql://db/tasks?user=ada"),
        ("postgresql://db/tasks?sslkey=/k&sslpassword=xyzzyplugh&sslmode=require", None),
        ("postgresql://db/tasks?pasword=xyzzyplugh", "postgresql://db/tasks"),
        ("postgresql:///tasks?host=/run/postgresql", "postgresql:///tasks?host=/run/postgresql"),
        ("postgresql://", "postgresql://"),
        ("postgresql://[::1]:5433/tasks", "postgresql://[::1]:5433/tasks"),
        ("postgresql://%2Frun%2Fpostgresql/tasks", "postgresql://%2Frun%2Fpostgresql/tasks"),
        ("postgresql://ada@pool:6432/t?listen_port=5432", "postgresql://ada@pool:6432/t?listen_port=5432"),
    ],
)
def test_a_url_is_shown_as_it_is_without_what_is_secret(given: str, shown: str | None) -> None:
    target = parse(given)
    assert target.shown == (shown or "postgresql://db/tasks?sslkey=/k&sslmode=require")
    assert SECRET not in repr(target)
    assert SECRET not in target.migrate


def test_the_command_that_migrates_can_be_pasted_into_a_shell() -> None:
    shown = "postgresql://db/tasks?user=ada&sslmode=require"
    assert parse(shown).migrate == f"perdure migrate '{shown}'"


# -- what is refused ---------------------------------------------------------------------------------------------------

UNREADABLE = [
    ("postgresql:xyzzyplugh", "does not begin with postgresql://"),
    ("POSTGRESQL://ada:xyzzyplugh@db/tasks", "does not begin with postgresql://"),
    ("mysql://ada:xyzzyplugh@db/tasks", "does not begin with postgresql://"),
    ("postgresql://ada:xyzzy@plugh@db/tasks", "write each other as %40"),
    ("postgresql://ada:xyzzy/plugh@db/tasks", "write each other as %40"),
    ("postgresql://ada:xyzzy?plugh@db/tasks", "write each other as %40"),
    ("postgresql://ada:1?x=xyzzyplugh@db/tasks", "write each other as %40"),
    ("postgresql://ada:xyzzy#plugh@db/tasks", "write it as %23"),
    ("postgresql://ada:xyzzyplugh@db/tasks#", "write it as %23"),
    ("postgresql://ada:xyzzyplugh%@db/tasks", "write % itself as %25"),
    ("postgresql://ada:xyzzy plugh@db/tasks", "a space as %20"),
    ("postgresql://ada:xyzzyplugh@db/tasks\n", "a line break"),
    ("postgresql://ada:xyzzyplugh%00@db/tasks", "a null"),
    ("postgresql://ada:xyzzyplugh%E9@db/tasks", "can't be read"),
    ("postgresql://ada:xyzzyplugh\udce9@db/tasks", "can't be read"),
    ("postgresql://ada:[xyzzyplugh@db/tasks", "can't be read"),
    ("postgresql://ada:xyzzyplugh@db/tasks?sslmode", "can't be read"),
    ("postgresql://ada:xyzzyplugh/tasks", "a host or a port"),
    ("postgresql://ada:xyzzyplugh@:5432/tasks", "a host or a port"),
    ("postgresql://ada:xyzzyplugh@db,,db2/tasks", "a host or a port"),
    ("postgresql://ada:xyzzyplugh@db:65536/tasks", "a host or a port"),
    ("postgresql://ada:xyzzyplugh@::1/tasks", "a host or a port"),
    ("postgresql://ada:xyzzyplugh@db/tasks?channel_binding=require", "asyncpg, has no option channel_binding"),
    ("postgresql://ada:xyzzyplugh@db/tasks?xyzzy%20plugh=1", "the name of an option"),
    ("postgresql://ada:xyzzyplugh@db/tasks?port=x", "port is no number"),
    ("postgresql://ada:xyzzyplugh@db/tasks?listen_port=0", "listen_port is no number"),
    ("postgresql://ada:xyzzyplugh@db/tasks?listen_host=a,,b", "listen_host has an empty name"),
    ("postgresql://ada:xyzzyplugh@/tasks?host=,", "host has an empty name"),
]


@pytest.mark.parametrize(("given", "part"), UNREADABLE)
def test_a_url_that_cant_be_used_is_refused_in_one_line_that_shows_nothing_secret(given: str, part: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        parse(given)
    assert part in str(caught.value)
    everything = "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None
    for text in (str(caught.value), everything.partition("Error")[2]):
        for word in ("xyzzy", "plugh"):
            assert word not in text
    assert "\n" not in str(caught.value)


def test_an_option_without_a_value_is_as_if_it_were_not_there_as_the_driver_has_it() -> None:
    assert parse("postgresql://ada@db/tasks?port=&sslmode=").shown == "postgresql://ada@db/tasks"


# -- connecting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["netloc", "query"])
async def test_a_password_may_have_any_characters_if_they_are_escaped(strict: Cluster, place: str) -> None:
    where = f"127.0.0.1:{strict.port}/tasks"
    text = {
        "netloc": f"postgresql://ada:{quote(PASSWORD, safe='')}@{where}",
        "query": f"postgresql://{where}?user=ada&password={quote(PASSWORD, safe='')}",
    }[place]
    target = parse(text)
    assert await answer(await target.connect(PATIENCE), "SELECT current_user") == "ada"
    assert PASSWORD not in repr(target)
    assert quote(PASSWORD, safe="") not in repr(target) + target.shown


async def test_a_password_may_be_in_the_environment(strict: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    target = parse(f"postgresql://ada@127.0.0.1:{strict.port}/tasks")
    assert await answer(await target.connect(PATIENCE), "SELECT current_user") == "ada"


async def test_a_password_may_be_in_a_password_file(
    strict: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    passfile = tmp_path / "pgpass"
    passfile.write_text(f"*:*:*:postgres:{strict.password}\n")
    passfile.chmod(0o600)
    target = parse(f"postgresql://postgres@127.0.0.1:{strict.port}/tasks?passfile={passfile}")
    assert await answer(await target.connect(PATIENCE), "SELECT current_user") == "postgres"


@pytest.mark.parametrize("written", ["query", "netloc"])
async def test_a_server_may_be_reached_by_its_socket(strict: Cluster, written: str) -> None:
    folder = str(strict.data)
    text = {
        "query": f"postgresql://postgres:{strict.password}@/tasks?host={folder}&port={strict.port}",
        "netloc": f"postgresql://postgres:{strict.password}@{quote(folder, safe='')}:{strict.port}/tasks",
    }[written]
    assert await answer(await parse(text).connect(PATIENCE), "SELECT inet_client_addr()") is None


@pytest.mark.parametrize("named", ["in the URL", "as options", "as options, with one port each", "for LISTEN"])
async def test_a_host_that_takes_connections_and_says_nothing_does_not_use_up_the_time_of_the_next(
    postgres: Cluster, named: str
) -> None:
    """As a machine that hangs, while its standby has been promoted."""
    port, user = postgres.port, f"postgresql://postgres:{postgres.password}"
    target = parse(
        {
            "in the URL": f"{user}@127.0.0.2:{port},127.0.0.1:{port}/postgres",
            "as options": f"{user}@/postgres?host=127.0.0.2,127.0.0.1&port={port}",
            "as options, with one port each": f"{user}@/postgres?host=127.0.0.2,127.0.0.1&port={port},{port}",
            "for LISTEN": f"{user}@127.0.0.1:1/postgres?listen_host=127.0.0.2,127.0.0.1&listen_port={port}",
        }[named]
    )
    with socket.create_server(("127.0.0.2", port)):
        assert await answer(await (target.connect_directly if target.pooled else target.connect)(2), "SELECT 1") == 1


async def test_what_is_said_of_several_hosts_of_which_none_will_do_is_what_keeps_the_last_from_it(
    postgres: Cluster,
) -> None:
    """And not that another is a standby, which is how it should be."""
    standby = f"127.0.0.1:{postgres.port}"
    for hosts in (f"127.0.0.1:1,{standby}", f"{standby},127.0.0.1:1"):
        text = f"postgresql://postgres:{postgres.password}@{hosts}/postgres?default_transaction_read_only=on"
        with pytest.raises(ConnectionRefusedError):
            await parse(text).connect(PATIENCE)


async def test_hosts_and_ports_that_do_not_match_are_the_drivers_to_refuse(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is no URL that the driver can use" in await refusal("postgresql:///x?host=a,b,c&port=1,2")
    monkeypatch.setenv("PGPORT", f"1,{postgres.port}")
    target = parse(f"postgresql://postgres:{postgres.password}@127.0.0.1,127.0.0.1/postgres")
    assert await answer(await target.connect(PATIENCE), "SELECT 1") == 1


async def test_the_first_of_several_hosts_that_answers_is_taken(postgres: Cluster) -> None:
    target = parse(postgres.url().replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:"))
    assert await answer(await target.connect(PATIENCE), "SELECT 1") == 1


@pytest.mark.parametrize(
    ("name", "usual", "option", "given"),
    [
        ("application_name", "perdure", "reports", "reports"),
        ("statement_timeout", "10s", "3000", "3s"),
        ("lock_timeout", "5s", "2s", "2s"),
        ("idle_in_transaction_session_timeout", "10s", "1min", "1min"),
        ("jit", "off", "on", "on"),
    ],
)
async def test_settings_are_ours_unless_the_url_gives_them(
    postgres: Cluster, name: str, usual: str, option: str, given: str
) -> None:
    assert await setting(parse(postgres.url()), name) == usual
    assert await setting(parse(f"{postgres.url()}?{name}={option}"), name) == given


async def test_the_name_of_the_application_may_be_in_the_environment(
    postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGAPPNAME", "reports")
    assert await setting(parse(postgres.url()), "application_name") == "reports"


async def test_a_direct_connection_has_no_bounds_of_time(postgres: Cluster) -> None:
    connection = await parse(postgres.url()).connect_directly(PATIENCE)
    assert await answer(connection, "SELECT current_setting('statement_timeout')") == "0"


def test_a_transaction_is_read_committed_whatever_the_database_says() -> None:
    assert parse("postgresql://db/tasks").begin == BEGIN == "BEGIN ISOLATION LEVEL READ COMMITTED"


# -- behind a pooler ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "host", "port"),
    [
        ("listen_host=db", ["db"], 5432),
        ("listen_port=5433", None, 5433),
        ("listen_host=db,db2&listen_port=5433", ["db", "db2"], 5433),
    ],
)
def test_either_option_for_the_direct_way_means_that_a_pooler_is_named(
    options: str, host: list[str] | None, port: int
) -> None:
    target = parse(f"postgresql://pool:6432/tasks?{options}")
    assert target.pooled
    assert (target._host, target._port) == (host, port)  # pyright: ignore[reportPrivateUsage] - hosts that exist nowhere
    assert not parse("postgresql://pool:6432/tasks").pooled


async def test_behind_a_pooler_settings_come_with_each_transaction(postgres: Cluster, pgbouncer: Bouncer) -> None:
    text = pgbouncer.through(postgres.url(lock_timeout="7s", work_mem="5MB", application_name="it's"))
    target = parse(text)
    connection = await target.connect(PATIENCE)
    await connection.execute(target.begin)
    names = ["statement_timeout", "lock_timeout", "work_mem", "jit", "transaction_isolation", "application_name"]
    settings = [await connection.fetchval("SELECT current_setting($1)", name) for name in names]
    await connection.execute("COMMIT")
    connection.terminate()
    assert settings == ["10s", "7s", "5MB", "off", "read committed", "it's"]


async def test_what_needs_a_session_goes_past_the_pooler(postgres: Cluster, pgbouncer: Bouncer) -> None:
    target = parse(pgbouncer.through(postgres.url()))
    connection = await target.connect_directly(PATIENCE)
    assert await answer(connection, "SELECT inet_server_port()") == postgres.port


async def test_a_session_of_another_kind_may_be_asked_for(strict: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    strict.sql("CREATE DATABASE fixed; ALTER DATABASE fixed SET default_transaction_read_only = on")
    given = parse(strict.url("fixed", target_session_attrs="any"))
    assert await answer(await given.connect(PATIENCE), "SELECT 1") == 1
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "read-only")
    assert await answer(await parse(strict.url("fixed")).connect(PATIENCE), "SELECT 1") == 1


def test_every_option_is_read_by_one_side_only() -> None:
    assert not url._DRIVERS & (url._OURS | url._UNKNOWN_TO_DRIVER)  # pyright: ignore[reportPrivateUsage] - its tables
