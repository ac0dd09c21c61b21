"""Every statement uses the index that the line above it names, and none walks through a table that grows.

The expectation is read from the module itself, so a statement that comes without one fails here.
"""

import inspect
import itertools
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from perdure.domain.model import NewTask, Operation, Owner
from perdure.store import rows
from perdure.store.sealing import CLEAR
from perdure.store.sqlite import schema, sql, sql_operating, sql_routes

MODULES: Final = (sql, sql_operating, sql_routes)
STATEMENTS: dict[str, str] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]*", name)
}
COMMENTS: dict[str, str] = {
    name: comment.replace("\n# ", " ")
    for module in MODULES
    for comment, name in re.findall(
        r"^# ((?:index|scans): .*(?:\n# .*)*)\n([A-Z_]+): Final", inspect.getsource(module), re.MULTILINE
    )
}
"""What stands above each constant: `index: NAMES. REMARK` or `scans: NAMES. WHY`."""
RESEALING = {"TASK_SAMPLE", "RESEAL_TASK", "RESEALED_TASK"}
"""A few of them are read at a start, and all when keys are changed."""


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    connection = schema.connect_writer(tmp_path_factory.mktemp("plans") / "tasks.db")
    yield connection
    connection.close()


def plan_of(connection: sqlite3.Connection, statement: str) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", [None] * statement.count("?"))
    return [detail for _, _, _, detail in rows]


def names_in(comment: str) -> str:
    """The part of a comment that names tables and indexes."""
    return re.sub("^(index|scans): ", "", comment).partition(". ")[0]


def indexes_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}


def tables_of(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}


def test_the_statements_are_found() -> None:
    assert len(STATEMENTS) > 30
    assert {"TASK_OWNED", "RUN_CLAIM", "ENTRY_WRITE"} <= set(STATEMENTS)


def test_neither_a_poll_nor_a_write_reads_the_parameters() -> None:
    """They may be a mebibyte. Whoever runs a task needs them, and operators ask for them or seal them anew."""
    about = {name for name, statement in STATEMENTS.items() if "params" in statement}
    assert about - {"TASK_INSERT"} - RESEALING == {"TASK_OPERATION", "TASK_CLAIMED"}


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_names_the_index_it_relies_on(name: str) -> None:
    assert name in COMMENTS, f"say above {name} which index it uses: `# index: NAME`, or why it may do without one"


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_plan_uses_the_indexes_that_are_named(connection: sqlite3.Connection, name: str) -> None:
    plan = plan_of(connection, STATEMENTS[name])
    if not plan:
        assert re.match(r"\s*INSERT\b.*\bVALUES\b", STATEMENTS[name], re.DOTALL)
        return
    named = names_in(COMMENTS[name])
    used = {word for word in re.findall(r"\w+", named) if word in indexes_of(connection)}
    for index in used:
        assert any(re.search(rf"^(SEARCH|SCAN) \w+ USING (COVERING )?INDEX {index}\b", line) for line in plan), plan
    keys = set(re.findall(r"(\w+)'s primary key", named))
    for table in keys:
        assert any(re.search(rf"^SEARCH {table} USING (INTEGER )?PRIMARY KEY\b", line) for line in plan), plan
    assert used or keys or COMMENTS[name].startswith("scans: ")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_table_unless_it_says_why(connection: sqlite3.Connection, name: str) -> None:
    tables = tables_of(connection)
    scanned = {match[1] for line in plan_of(connection, STATEMENTS[name]) if (match := re.match(r"SCAN (\w+)", line))}
    said = set(re.findall(r"\w+", names_in(COMMENTS[name]))) if COMMENTS[name].startswith("scans: ") else set[str]()
    assert scanned & tables == said & tables


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_sorts_unless_it_says_what(connection: sqlite3.Connection, name: str) -> None:
    sorts = [line for line in plan_of(connection, STATEMENTS[name]) if "TEMP B-TREE" in line]
    assert bool(sorts) == (". Sorts: " in COMMENTS[name])


def test_every_index_is_named_by_a_statement(connection: sqlite3.Connection) -> None:
    """An index that no statement needs costs each write and gains nothing."""
    named = " ".join(COMMENTS.values())
    assert [index for index in indexes_of(connection) if index not in named] == []


def steps_of(connection: sqlite3.Connection, statement: str, values: Sequence[object]) -> int:
    """How many instructions SQLite takes for a statement. A plan can't tell: it doesn't know how far it goes."""
    steps = itertools.count()
    connection.set_progress_handler(lambda: next(steps) < 0, 1)
    connection.execute(statement, values).fetchall()
    connection.set_progress_handler(None, 1)
    return next(steps)


def fill(connection: sqlite3.Connection, each: int) -> None:
    """A session, and five tenants that have so many runs each to be run at once and as many that wait for a time."""
    connection.execute(sql.SESSION_INSERT, ("s", 1, "{}"))
    for seq in range(10 * each):
        tenant, due_at = f"t{seq % 5}", -seq if seq < 5 * each else 1_000 + seq
        connection.execute(sql.RUN_INSERT, (seq, "h", tenant, due_at or -1, 10, None))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("RUN_TENANTS_ENDS", ("h", "h")),
        ("RUN_TENANTS", ("t1", "h", 10)),
        ("RUN_BACKLOG", (500, 20)),
        ("RUN_BACKLOG_OF", ("t1", 500, "t1", 10)),
        ("TASK_UNFINISHED", ("t1", "ada", 10)),
        ("RUN_PROMOTE", (0, 500, 500)),
        ("SESSION_ALIVE", (500, "s", 0)),
        ("RUN_CLAIM", ("s", 1, 0, "h", "t1", 2)),
    ],
)
def test_what_a_look_costs_does_not_grow_with_the_runs_that_wait(tmp_path: Path, name: str, values: Any) -> None:
    costs: list[int] = []
    for each in (10, 100):
        with closing(schema.connect_writer(tmp_path / f"{each}.db")) as connection:
            connection.execute("BEGIN")
            fill(connection, each)
            costs.append(steps_of(connection, STATEMENTS[name], values))
    # One probe's path through the tree may be a little longer.
    assert costs[1] <= costs[0] * 1.1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ROUTE_BEHIND", ("b", "r-5")),
        ("ROUTE_OWNED", ("tsk_5", "t", "ada")),
        ("ROUTES_OWNED", ('["tsk_5","tsk_6"]', "t", "ada")),
        ("ROUTE_UPDATE", (7, 8, 9, "tsk_5")),
        ("ROUTE_DOUBTFUL", (500, 10)),
        ("ROUTE_ASKED", (7, 8, '["tsk_5","tsk_6"]')),
        ("ROUTE_OVER", (500, 10)),
    ],
)
def test_what_a_look_at_routes_costs_does_not_grow_with_the_routes_that_there_are(
    tmp_path: Path, name: str, values: Any
) -> None:
    costs: list[int] = []
    for each in (20, 2_000):
        with closing(schema.connect_writer(tmp_path / f"{each}.db")) as connection:
            connection.execute("BEGIN")
            for number in range(each):
                # Half of them are over in time, of half it is not known; none yet.
                later = 1_000 + number
                times = (later, number, None) if number % 2 else (None, None, later)
                row = (f"tsk_{number}", "t", "ada", "b", f"r-{number}", number, *times)
                connection.execute(sql_routes.ROUTE_INSERT, row)
            costs.append(steps_of(connection, STATEMENTS[name], values))
    assert costs[1] <= costs[0] * 1.1


@pytest.mark.parametrize("before", [2**63 - 1, 50])
def test_what_a_page_costs_does_not_grow_with_the_tasks_that_there_are(tmp_path: Path, before: int) -> None:
    costs: list[int] = []
    for each in (20, 200):
        with closing(schema.connect_writer(tmp_path / f"{each}.db")) as connection:
            connection.execute("BEGIN")
            # The owner's are older than everybody else's, and there are more of them than fit.
            for number in range(5 * each):
                owner = Owner("t", "ada" if number < 2 * each else f"p{number}")
                new = NewTask(f"tsk_{number}", owner, Operation("tools/call", "h", {}))
                connection.execute(sql.TASK_INSERT, rows.new_values(new, 1, CLEAR))
            costs.append(steps_of(connection, sql.TASK_PAGE, ("t", "ada", before, 10)))
    assert costs[1] == costs[0]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("NEWEST", (2**63 - 1, 10)),
        ("NEWEST_UNFINISHED", (2**63 - 1, 10)),
        ("TASK_NAMED", ("tsk_5", "tsk_5\x7f", 2)),
        ("TASK_LISTED", ("[3,4,5]", '["working"]', None, None, None, 5, None, None)),
        ("TASK_TALLY", ("[3,4,5]",)),
        ("TASK_DISCARDED", ('["tsk_3"]',)),
    ],
)
def test_what_a_part_of_a_list_costs_does_not_grow_with_the_tasks_that_there_are(
    tmp_path: Path, name: str, values: Any
) -> None:
    costs: list[int] = []
    for each in (20, 200):
        with closing(schema.connect_writer(tmp_path / f"{each}.db")) as connection:
            connection.execute("BEGIN")
            for number in range(5 * each):
                new = NewTask(f"tsk_{number}", Owner("t", "ada"), Operation("tools/call", "h", {}))
                connection.execute(sql.TASK_INSERT, rows.new_values(new, 1, CLEAR))
                connection.execute(sql.RUN_INSERT, (number + 1, "h", "t", -1, 10, None))
            costs.append(steps_of(connection, STATEMENTS[name], values))
    assert costs[1] <= costs[0] * 1.1
