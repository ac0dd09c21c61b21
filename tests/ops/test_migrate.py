"""`perdure migrate`: applying, checking, printing, and what it says; against a real server and a real file."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from perdure.domain.errors import StoreUnusable
from perdure.ops import stores
from perdure.ops.cli import main
from perdure.store.migrate import Migration, Phase
from perdure.store.postgres import schema
from perdure.store.sqlite import schema as sqlite_schema
from perdure.testing.postgresql import Cluster

LAST = len(schema.MIGRATIONS)
APPLIED = "".join(f"applied {migration}\n" for migration in schema.MIGRATIONS)
PENDING = APPLIED.replace("applied", "pending")
REMOVES = Migration(LAST + 1, "removes", ("ALTER TABLE perdure.task DROP COLUMN name;",), Phase.POST)


def migrate(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["migrate", *arguments], env=env)


def shown(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", "@")


def without_password(cluster: Cluster, url: str) -> tuple[str, dict[str, str]]:
    return shown(url), {"PGPASSWORD": cluster.password}


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


def test_a_database_is_migrated_once(empty_database: str) -> None:
    done = migrate(empty_database)
    assert (done.exit_code, done.output) == (0, APPLIED)
    done = migrate(empty_database)
    assert (done.exit_code, done.output) == (0, f"{shown(empty_database)} is up to date\n")


def test_a_check_tells_what_is_pending_by_its_status_and_changes_nothing(empty_database: str) -> None:
    for _ in range(2):
        done = migrate("--check", empty_database)
        assert (done.exit_code, done.output) == (1, PENDING)
    migrate(empty_database)
    done = migrate("--check", empty_database)
    assert (done.exit_code, done.output) == (0, f"{shown(empty_database)} is up to date\n")


def test_what_must_wait_is_named_with_when_to_run_it(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, REMOVES))
    url = shown(database)
    later = (
        f"{url} is up to date\nleft for later: {REMOVES}: once no older release of Perdure runs, run perdure migrate "
        f"--post {url}\n"
    )
    for arguments in ([], ["--check"]):
        done = migrate(*arguments, database)
        assert (done.exit_code, done.output) == (0, later)
    done = migrate("--check", "--post", database)
    assert (done.exit_code, done.output) == (1, f"pending {REMOVES}\n")
    done = migrate("--post", database)
    assert (done.exit_code, done.output) == (0, f"applied {REMOVES}\n")


def test_what_would_be_run_can_be_had_as_a_script(empty_database: str, postgres: Cluster) -> None:
    script = migrate("--sql", empty_database).output
    postgres.sql(script, empty_database.rpartition("/")[2])
    assert migrate("--check", empty_database).exit_code == 0
    assert migrate("--sql", empty_database).output == f"-- {shown(empty_database)} is up to date\n"


def test_the_url_and_the_password_may_be_in_the_environment(empty_database: str, postgres: Cluster) -> None:
    url, env = without_password(postgres, empty_database)
    assert migrate(env={**env, "PERDURE_STORE": url}).output == APPLIED


def test_the_url_may_be_said_as_every_other_command_has_it(empty_database: str) -> None:
    assert migrate("--store", empty_database, env={"PERDURE_STORE": "elsewhere"}).output == APPLIED
    done = migrate(empty_database, env={"PERDURE_STORE": "elsewhere"})
    assert (done.exit_code, done.output) == (0, f"{shown(empty_database)} is up to date\n")


def test_a_store_that_is_named_twice_or_never_is_refused_and_how_to_name_it_is_shown() -> None:
    done = migrate("sqlite:///a.db", "--store", "sqlite:///b.db")
    assert done.exit_code == 2
    assert "Usage: main migrate [OPTIONS] [URL]\n" in done.output
    assert done.output.endswith("\nError: Say which store once: URL or --store URL.\n")
    done = migrate(env={"PERDURE_STORE": ""})
    assert done.exit_code == 2
    assert done.output.endswith("\nError: Say which store: URL, or --store URL, or PERDURE_STORE in the environment.\n")


def test_its_help_says_whose_users_may_go_on_meanwhile_and_whose_may_not() -> None:
    said = " ".join(CliRunner().invoke(main, ["migrate", "--help"]).output.split())
    assert "users of a PostgreSQL database may go on meanwhile; those of a SQLite file have to be stopped first" in said


def test_a_check_and_a_script_are_two_things(empty_database: str) -> None:
    done = migrate("--check", "--sql", empty_database)
    assert done.exit_code == 2
    assert "Say --check or --sql, not both." in done.output


def test_a_database_that_cant_be_used_is_told_in_one_line_without_the_password(postgres: Cluster) -> None:
    for arguments in ([], ["--check"], ["--sql"], ["--post"]):
        done = migrate(*arguments, postgres.url("nothing"))
        assert done.exit_code == 1
        assert done.output == (
            f"perdure: {shown(postgres.url('nothing'))} names a database that does not exist: create it (CREATE "
            "DATABASE), or name another\n"
        )


def test_a_url_that_cant_be_read_is_told_in_one_line_without_the_password() -> None:
    done = migrate("postgresql://ada:xyzzy/plugh@db/tasks")
    assert done.exit_code == 1
    assert done.output.count("\n") == 1
    assert "xyzzy" not in done.output
    assert "plugh" not in done.output


def test_it_is_a_program_too(empty_database: str, postgres: Cluster) -> None:
    url, env = without_password(postgres, empty_database)
    done = subprocess.run(
        [Path(sys.executable).with_name("perdure"), "migrate", url],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, APPLIED, "")


# -- SQLite ------------------------------------------------------------------------------------------------------------

FILE_PENDING = "".join(f"pending {migration}\n" for migration in sqlite_schema.MIGRATIONS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def test_a_file_is_made_and_migrated(path: Path) -> None:
    url = f"sqlite:///{path}"
    done = migrate("--check", url)
    assert (done.exit_code, done.output) == (1, FILE_PENDING)
    assert not path.exists()
    assert migrate(url).output == FILE_PENDING.replace("pending", "applied")
    for arguments in ([], ["--check"], ["--post"]):
        done = migrate(*arguments, url)
        assert (done.exit_code, done.output) == (0, f"{url} is up to date\n")
    assert migrate("--sql", url).output == f"-- {url} is up to date\n"


def test_an_older_file_lacks_what_came_since(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_schema, "MIGRATIONS", sqlite_schema.MIGRATIONS[:1])
        sqlite_schema.connect_writer(path).close()
    done = migrate("--check", f"sqlite:///{path}")
    assert (done.exit_code, done.output) == (1, "".join(FILE_PENDING.splitlines(keepends=True)[1:]))


def test_the_script_makes_the_file_that_opening_it_makes(path: Path, tmp_path: Path) -> None:
    script = migrate("--sql", f"sqlite:///{path}").output
    assert not path.exists()
    other = tmp_path / "other.db"
    sqlite_schema.connect_writer(other).close()
    path.touch()
    with closing(sqlite_schema.connect_reader(path)) as made, closing(sqlite_schema.connect_reader(other)) as opened:
        made.execute("PRAGMA query_only = OFF")
        made.executescript(script.removeprefix(".bail on\n"))
        for query in (
            "SELECT name, sql FROM sqlite_schema ORDER BY name",
            "PRAGMA user_version",
            "PRAGMA application_id",
        ):
            assert made.execute(query).fetchall() == opened.execute(query).fetchall()
    assert migrate("--check", f"sqlite:///{path}").exit_code == 0


def test_another_programs_file_is_refused(path: Path) -> None:
    path.write_text("this is no database, but it is long enough to be looked at as if it were one" * 20)
    done = migrate("--check", f"sqlite:///{path}")
    assert (done.exit_code, done.output) == (
        1,
        f"perdure: {path} is no SQLite database: name another file, or move this one away\n",
    )


# -- which store a URL means -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["tasks.db", "mysql://ada:xyzzy@db/tasks", "mysql://ada:xyz/zy?@db/tasks", ""])
def test_a_url_of_another_kind_names_no_store(url: str) -> None:
    done = migrate(url)
    assert done.exit_code == 1
    assert "names no store: write sqlite:///tasks.db, or postgresql://user@host/database" in done.output
    assert "xyz" not in done.output
    assert "zy" not in done.output


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_postgresql_without_its_driver_says_what_to_install(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(("asyncpg.", "perdure.store.postgres."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("perdure.store.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for opening in (stores.open_store, stores.upgrade_of):
        with pytest.raises(StoreUnusable) as caught:
            opening(f"{scheme}://db/tasks")
        assert str(caught.value) == "PostgreSQL needs a driver: pip install 'perdure[postgres]'"
