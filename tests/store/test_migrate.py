"""Numbered SQL files: how they are read, and what a version number makes of them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.domain.errors import StoreUnusable
from perdure.store.migrate import Migration, load, pending
from perdure.store.sqlite import schema

ONE, TWO, THREE = (Migration(number, f"m{number}", ()) for number in (1, 2, 3))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The `migrations` folder of an importable package `some_backend`."""
    folder = tmp_path / "some_backend" / "migrations"
    folder.mkdir(parents=True)
    (tmp_path / "some_backend" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield folder
    sys.modules.pop("some_backend", None)


def test_migrations_are_read_in_the_order_of_their_numbers(package: Path) -> None:
    for name in ("0002_second.sql", "0010_tenth.sql", "0001_first.sql"):
        (package / name).write_text("SELECT 1;\n")
    assert [(migration.number, migration.name) for migration in load("some_backend")] == [
        (1, "first"),
        (2, "second"),
        (10, "tenth"),
    ]


def test_files_that_are_no_migrations_are_left_alone(package: Path) -> None:
    for name in ("README.md", "1_short.sql", "0001_first.sql.bak", "0001 first.sql", "x0001_first.sql"):
        (package / name).touch()
    assert load("some_backend") == ()


def test_a_statement_ends_with_a_semicolon_at_the_end_of_a_line(package: Path) -> None:
    (package / "0001_first.sql").write_text(
        "-- What it is for; in two parts.\nCREATE TABLE a (\n    x TEXT DEFAULT 'a;b'\n);\n\n\nCREATE TABLE b (y);  \n"
    )
    (migration,) = load("some_backend")
    assert migration.statements == (
        "-- What it is for; in two parts.\nCREATE TABLE a (\n    x TEXT DEFAULT 'a;b'\n);",
        "CREATE TABLE b (y);",
    )


def test_a_database_is_brought_forward_from_where_it_is() -> None:
    migrations = (ONE, TWO, THREE)
    assert pending(migrations, 0, where="tasks.db") == migrations
    assert pending(migrations, 2, where="tasks.db") == (THREE,)
    assert pending(migrations, 3, where="tasks.db") == ()


def test_a_database_from_a_newer_release_is_refused_with_both_versions_and_what_to_do() -> None:
    with pytest.raises(StoreUnusable) as caught:
        pending((ONE, TWO), 5, where="tasks.db")
    assert str(caught.value) == (
        "tasks.db has schema version 5, and this Perdure knows versions up to 2: "
        "upgrade Perdure, or point it at another store"
    )


def test_the_numbers_of_the_sqlite_migrations_run_from_1_without_a_gap() -> None:
    assert [migration.number for migration in schema.MIGRATIONS] == list(range(1, len(schema.MIGRATIONS) + 1))
    assert all(migration.statements for migration in schema.MIGRATIONS)
