"""Every statement uses the index that the line above it names, and none walks through a table that grows.

The expectation is read from the module itself, so a statement that comes without one fails here.
"""

import inspect
import re
import sqlite3
from collections.abc import Iterator

import pytest

from perdure.store.sqlite import schema, sql

STATEMENTS: dict[str, str] = {
    name: value for name, value in vars(sql).items() if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]*", name)
}
COMMENTS: dict[str, str] = {
    name: comment.replace("\n# ", " ")
    for comment, name in re.findall(
        r"^# ((?:index|scans): .*(?:\n# .*)*)\n([A-Z_]+): Final", inspect.getsource(sql), re.MULTILINE
    )
}
"""What stands above each constant: `index: NAMES. REMARK` or `scans: WHY`."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    connection = schema.connect_writer(tmp_path_factory.mktemp("plans") / "tasks.db")
    yield connection
    connection.close()


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
    return [detail for _, _, _, detail in rows]


def indexes_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}


def tables_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_the_statements_are_found() -> None:
    assert len(STATEMENTS) > 30
    assert {"TASK_OWNED", "RUN_CLAIM", "INPUT_JOURNAL"} <= set(STATEMENTS)


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_names_the_index_it_relies_on(name: str) -> None:
    assert name in COMMENTS, f"say above {name} which index it uses: `# index: NAME`, or why it may do without one"


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_plan_uses_the_indexes_that_are_named(connection: sqlite3.Connection, name: str) -> None:
    plan = plan_of(connection, STATEMENTS[name])
    if not plan:
        assert re.match(r"\s*INSERT\b.*\bVALUES\b", STATEMENTS[name], re.DOTALL)
        return
    named = COMMENTS[name].removeprefix("index: ").partition(". ")[0]
    used = {word for word in re.findall(r"\w+", named) if word in indexes_of(connection)}
    for index in used:
        assert any(re.search(rf"^SEARCH \w+ USING (COVERING )?INDEX {index}\b", line) for line in plan), plan
    keys = set(re.findall(r"(\w+)'s primary key", named))
    for table in keys:
        assert any(re.search(rf"^SEARCH {table} USING (INTEGER )?PRIMARY KEY\b", line) for line in plan), plan
    assert used or keys or COMMENTS[name].startswith("scans: ")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_table_unless_it_says_why(connection: sqlite3.Connection, name: str) -> None:
    scans = [line for line in plan_of(connection, STATEMENTS[name]) if re.match(r"SCAN (?!json_each\b)", line)]
    assert scans == (["SCAN session"] if COMMENTS[name].startswith("scans: ") else [])


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_sorts_unless_it_says_what(connection: sqlite3.Connection, name: str) -> None:
    sorts = [line for line in plan_of(connection, STATEMENTS[name]) if "TEMP B-TREE" in line]
    assert bool(sorts) == (". Sorts: " in COMMENTS[name])


def test_every_index_is_named_by_a_statement(connection: sqlite3.Connection) -> None:
    """An index that no statement needs costs each write and gains nothing."""
    named = " ".join(COMMENTS.values())
    assert [index for index in indexes_of(connection) if index not in named] == []
