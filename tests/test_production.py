"""The statements of `docs/howto/production.md` do what the page says, in its order."""

import re
from collections.abc import Iterator

import pytest

from perdure.store.postgres import PostgresStore, PostgresUpgrade, schema
from perdure.testing.postgresql import Cluster
from tests.store.support import ADA, new_task
from tests.wire.support import ROOT

CREATE, GRANT, INDEX, WATCH, WATCHER = re.findall(
    r"```sql\n(.*?)```", (ROOT / "docs/howto/production.md").read_text("utf-8"), re.DOTALL
)


@pytest.fixture
def roles(postgres: Cluster) -> Iterator[Cluster]:
    """The database and the roles of the page, with a password."""
    postgres.sql(CREATE)
    postgres.sql("ALTER ROLE perdure_owner PASSWORD 'tables'; ALTER ROLE perdure PASSWORD 'rows'")
    yield postgres
    postgres.drop_database("perdure")
    postgres.sql("DROP ROLE perdure; DROP ROLE perdure_owner")


async def test_one_role_owns_the_tables_and_another_works_with_them(roles: Cluster) -> None:
    owner = roles.url("perdure", user="perdure_owner", password="tables")
    assert await PostgresUpgrade(owner).apply(post=True)
    roles.sql(f"SET ROLE perdure_owner; {GRANT}", "perdure")
    store = PostgresStore(roles.url("perdure", user="perdure", password="rows"))
    await store.open()
    try:
        task = await store.create(new_task())
        assert (await store.get(ADA, task.id)).id == task.id
    finally:
        await store.close()
    later = "CREATE TABLE perdure.later (id bigint GENERATED ALWAYS AS IDENTITY, at bigint)"
    roles.sql(f"SET ROLE perdure_owner; {later}", "perdure")
    roles.sql("SET ROLE perdure; INSERT INTO perdure.later (at) VALUES (1); DELETE FROM perdure.later", "perdure")


def test_the_indexes_that_may_be_made_before_are_those_that_migrations_would_make() -> None:
    made = [
        statement
        for migration in schema.MIGRATIONS[1:]
        if not any("CREATE TABLE" in statement for statement in migration.statements)  # what is new is empty
        for statement in migration.statements
    ]
    shown = INDEX.strip().replace(" CONCURRENTLY", "").removesuffix(";").split(";\n")
    assert len(made) == len(shown)
    for statement, index in zip(made, shown, strict=True):
        assert statement.removesuffix(";").endswith(index)


async def test_a_role_that_watches_sees_what_others_do_and_can_end_it(roles: Cluster) -> None:
    await PostgresUpgrade(roles.url("perdure", user="perdure_owner", password="tables")).apply(post=True)
    roles.sql(WATCHER, "perdure")
    store = PostgresStore(roles.url("perdure"))
    await store.open()
    try:
        assert "perdure|idle|" not in roles.sql(f"SET ROLE perdure; {WATCH}", "perdure")
        assert "run|" in roles.sql(f"SET ROLE perdure_watch; {WATCH}", "perdure")
        assert "perdure|idle|" in roles.sql(f"SET ROLE perdure_watch; {WATCH}", "perdure")
    finally:
        await store.close()
        roles.sql("DROP OWNED BY perdure_watch; DROP ROLE perdure_watch", "perdure")


def test_the_queries_that_watch_can_be_asked(database: str, postgres: Cluster) -> None:
    found = postgres.sql(WATCH, database.rpartition("/")[2])
    assert "run|" in found
    assert "tombstone|" in found
