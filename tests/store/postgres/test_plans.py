"""Every statement uses the indexes that the line above it names, and none walks through a table that grows.

The expectation is read from the module itself, so a statement that comes without one fails here. Each plan is asked for
twice, of tables that are empty and of tables that are not: plans are kept, and one that was good for an empty queue
would be a disaster for a full one. What is asked is a connection as the store has it, for a plan that fits all values.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from perdure.store.postgres import sql, sql_operating, sql_resealing, sql_routes
from perdure.store.postgres.url import Connection, parse
from perdure.testing.postgresql import Cluster
from tests.support import PATIENCE

MODULES: Final = (sql, sql_operating, sql_resealing, sql_routes)
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

_GROW: Final = """
INSERT INTO perdure.task (id, tenant, principal, method, name, params, handler_version, status, version, created_at,
                          updated_at, expires_at, accepts, idem_key)
SELECT 'tsk_' || n, 't' || n % 5, 'ada', 'tools/call', 'h', '{}', '',
       (ARRAY['working', 'input_required', 'completed', 'failed', 'cancelled'])[1 + n % 5], 1, n, n, n, '', 'key' || n
FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.run (task_seq, handler, tenant, due_at, session, deadline_at, max_attempts)
SELECT n, 'h' || n % 2, 't' || n % 5, CASE n % 3 WHEN 0 THEN n WHEN 1 THEN -n END,
       CASE n % 4 WHEN 0 THEN 's' || n % 9 END, CASE n % 4 WHEN 0 THEN n END, 10
FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.input (task_seq, key, position, request, state, issued_at)
SELECT n / 2, 'k' || n % 2, n % 2, '{}', 'answered', n FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.entry (task_seq, place, verb, name, state, value)
SELECT n / 4, n % 4, 'step', '', 'done', 'null' FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.event (task_seq, position, at, kind, detail)
SELECT n / 4, n % 4, n, 'death', '' FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.tombstone (id, tenant, principal, until)
SELECT 'tsk_' || n, 't', 'ada', n FROM generate_series(1, 2000) AS n;
INSERT INTO perdure.session (id, expires_at, info) SELECT 's' || n, n, '{}' FROM generate_series(1, 9) AS n;
INSERT INTO perdure.route (id, tenant, principal, backend, backend_task_id, created_at, expires_at, ended_at,
                           doubtful_at)
SELECT 'tsk_' || n, 't' || n % 5, 'ada', 'b' || n % 3, 'r-' || n, n, CASE n % 3 WHEN 0 THEN n END,
       CASE n % 2 WHEN 0 THEN n END, CASE n % 2 WHEN 1 THEN n END
FROM generate_series(1, 2000) AS n;
"""
_TABLES: Final = ("task", "run", "input", "entry", "event", "tombstone", "session", "route")


Plan = list[dict[str, Any]]
"""The nodes of a plan's tree, each before those below it."""


@pytest.fixture(scope="module", params=["empty", "grown"])
def plans(request: pytest.FixtureRequest, postgres: Cluster, migrated: str) -> Iterator[dict[str, Plan]]:
    """The plans of all statements, where the tables are known to be empty, or not to be."""
    name = f"plans_{request.param}"
    url = postgres.create_database(name, migrated)
    if request.param == "grown":
        postgres.sql(_GROW, name)
    postgres.sql("VACUUM ANALYZE", name)

    async def all_plans() -> dict[str, Plan]:
        connection = await parse(url).connect(PATIENCE)
        plans = {name: [*nodes(await plan_of(connection, statement))] for name, statement in STATEMENTS.items()}
        await connection.close()
        return plans

    yield asyncio.run(all_plans())
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def indexes(postgres: Cluster, migrated: str) -> set[str]:
    return set(postgres.sql("SELECT indexname FROM pg_indexes WHERE schemaname = 'perdure'", migrated).split())


async def plan_of(connection: Connection, statement: str, values: Sequence[object] = (), options: str = "") -> Any:
    """The plan for any values, as a tree."""
    count = max(map(int, re.findall(r"\$(\d+)", statement)), default=0)
    given = ", ".join(map(literal, values or [None] * count))
    await connection.execute(f"SET plan_cache_mode = force_generic_plan; PREPARE it AS {statement}")
    text = await connection.fetchval(
        f"EXPLAIN (FORMAT JSON, COSTS off{options}) EXECUTE it{f'({given})' * (count > 0)}"
    )
    await connection.execute("DEALLOCATE it")
    return json.loads(text)[0]["Plan"]


def literal(value: object) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(literal, value))}]"  # pyright: ignore[reportUnknownArgumentType] - of anything
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def names_in(comment: str) -> list[str]:
    """The words of the part of a comment that names tables and indexes."""
    return re.findall(r"\w+", re.sub("^(index|scans): ", "", comment).partition(". ")[0])


def test_the_statements_are_found() -> None:
    assert len(STATEMENTS) > 30
    assert {"CLAIM_LOOK", "RUN_CLAIM", "ENTRY_WRITE"} <= set(STATEMENTS)


def test_neither_a_poll_nor_a_write_reads_the_parameters() -> None:
    """They may be a mebibyte. Whoever runs a task needs them, and operators ask for them or seal them anew."""
    about = {name for name in vars(sql) if "params" in STATEMENTS.get(name, "")}
    assert about - {"TASK_CREATE"} == {"TASK_OPERATION", "RUN_CLAIM"}


@pytest.mark.parametrize("name", STATEMENTS)
def test_every_statement_names_the_index_it_relies_on(name: str) -> None:
    assert name in COMMENTS, f"say above {name} which index it uses: `# index: NAME`, or why it may do without one"


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_plan_uses_the_indexes_that_are_named_and_no_others(
    plans: dict[str, Plan], indexes: set[str], name: str
) -> None:
    plan = plans[name]
    used = {node["Index Name"] for node in plan if "Index Name" in node}
    used |= {index for node in plan for index in node.get("Conflict Arbiter Indexes", ())}
    if COMMENTS[name].startswith("index: "):
        assert used == set(names_in(COMMENTS[name])) & indexes


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_scans_a_table_unless_it_says_why(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]
    scanned = {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"}
    # An index that is walked through from end to end is a table that is scanned.
    walked = [node for node in plan if "Index Name" in node and not limited(node, plan)]
    scanned |= {node.get("Relation Name", node["Index Name"]) for node in walked}
    said = names_in(COMMENTS[name]) if COMMENTS[name].startswith("scans: ") else []
    assert scanned == set(said) & set(_TABLES)


def limited(node: Any, plan: Sequence[Any]) -> bool:
    """Whether so much of the index is not read: it is sought in, or is partial and its reader stops by itself."""
    return "Index Cond" in node or any(above["Node Type"] == "Limit" for above in plan if node in [*nodes(above)])


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_sorts_unless_it_says_what(plans: dict[str, Plan], name: str) -> None:
    sorts = [node for node in plans[name] if "Sort" in node["Node Type"]]
    assert bool(sorts) == (". Sorts: " in COMMENTS[name])


def test_every_index_is_named_by_a_statement(indexes: set[str]) -> None:
    """An index that no statement needs costs each write and gains nothing."""
    named = {word for comment in COMMENTS.values() for word in names_in(comment)}
    assert indexes - named == {"migration_pkey"}


# -- what a look costs -------------------------------------------------------------------------------------------------

_FILL: Final = """
INSERT INTO perdure.session (id, expires_at, info) VALUES ('s', 1000, '{{}}');
INSERT INTO perdure.task (id, tenant, principal, method, name, params, handler_version, status, version, created_at,
                          updated_at, expires_at, accepts)
SELECT 'tsk_' || n, 't' || n % 5, 'ada', 'tools/call', 'h', '{{}}', '',
       CASE n % 2 WHEN 0 THEN 'working' ELSE 'failed' END, 1, n, n, 1000 + n, ''
FROM generate_series(1, {0}) AS n;
INSERT INTO perdure.run (task_seq, handler, tenant, due_at, deadline_at, max_attempts)
SELECT n, 'h', 't' || n % 5, CASE WHEN n <= {0} / 2 THEN -n ELSE 1000 + n END, 1000 + n, 10
FROM generate_series(1, {0}) AS n;
INSERT INTO perdure.tombstone (id, tenant, principal, until)
SELECT 'old_' || n, 't', 'ada', 1000 + n FROM generate_series(1, {0}) AS n;
INSERT INTO perdure.route (id, tenant, principal, backend, backend_task_id, created_at, expires_at, ended_at,
                           doubtful_at)
SELECT 'tsk_' || n, 't', 'ada', 'b', 'r-' || n, n, 1000 + n, CASE n % 2 WHEN 0 THEN n END,
       CASE n % 2 WHEN 1 THEN 1000 + n END
FROM generate_series(1, {0}) AS n;
"""
_FEW, _MANY = 1_000, 8_000
_H: Final = ["h"]


@pytest.fixture(scope="module")
def filled(postgres: Cluster, migrated: str) -> Iterator[tuple[str, str]]:
    """Few and many: a session; five tenants with runs that may be run at once, and as many that wait for a time."""
    urls = [postgres.create_database(f"filled_{count}", migrated) for count in (_FEW, _MANY)]
    for count in (_FEW, _MANY):
        postgres.sql(_FILL.format(count), f"filled_{count}")
        postgres.sql("VACUUM ANALYZE", f"filled_{count}")
    yield urls[0], urls[1]
    for count in (_FEW, _MANY):
        postgres.drop_database(f"filled_{count}")


async def pages_read(url: str, statement: str, values: Sequence[object]) -> int:
    connection = await parse(url).connect(PATIENCE)
    plan: Any = None
    for _ in range(2):  # the first has to find out about the tables
        await connection.execute("BEGIN")
        plan = await plan_of(connection, statement, values, ", ANALYZE, BUFFERS, TIMING off, SUMMARY off")
        await connection.execute("ROLLBACK")
    await connection.close()
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("CLAIM_LOOK", [500, "s", _H, [10], [""], [None], "{}", "{}", "{}", "{}", 0]),
        ("CLAIM_LOOK", [500, "s", _H, [10], ["t1x"], ["t3"], _H, [10], ["t1"], [-30], 0]),
        ("RUN_CLAIM", [_H, ["t1"], [10], [-10_000], "s", 1, 500]),
        ("RUN_PROMOTE", [500, 500]),
        ("RUN_BACKLOG", [500, 20]),
        ("RUN_BACKLOG_OF", [500, 10, "t1"]),
        ("TASK_UNFINISHED", ["t1", "ada", 10]),
        ("RUN_LATE", [500, 10, 0]),
        ("TASK_OVERDUE", [500, 10]),
        ("TASK_PAGE", ["t1", "ada", 2**63 - 1, 10]),
        ("TASK_PAGE", ["t1", "ada", 500, 10]),
        ("TASK_PURGE", [500, 10, 0]),
        ("TOMBSTONE_PURGE", [500, 10]),
        ("SESSION_ALIVE", [500, "s"]),
        ("NEWEST", [2**63 - 1, 10]),
        ("NEWEST_UNFINISHED", [2**63 - 1, 10]),
        ("TASK_LISTED", [500, [3, 4, 5], ["working"], None, None, None, 5, None, None]),
        ("TASK_NAMED", ["tsk_5", "tsk_5~", 2]),
        ("TASK_TALLY", [[3, 4, 5]]),
        ("TASK_DISCARD", [500, ["tsk_3"]]),
        ("ROUTE_LAY", [500, ["tsk_3"], ["t"], ["ada"], ["b"], ["r-3"], [1]]),
        ("ROUTE_STANDING", [["tsk_3"], ["b"], ["r-3"]]),
        ("ROUTE_FIND", [["tsk_3"], ["t"], ["ada"]]),
        ("ROUTE_UPDATE", [["tsk_3"], [1], [1], [1]]),
        ("ROUTE_TAKE_DOUBTFUL", [500, 10, 1, 1]),
        ("ROUTE_LOCK", [500, ["tsk_3"]]),
        ("ROUTE_PURGE", [500, 10, 0]),
    ],
)
async def test_what_a_look_costs_does_not_grow_with_the_runs_that_wait(
    filled: tuple[str, str], name: str, values: Sequence[object]
) -> None:
    few, many = [await pages_read(url, STATEMENTS[name], values) for url in filled]
    # A probe's path through the tree is longer by a page, and there may be two for each tenant.
    assert many <= few + 12


async def test_what_a_look_costs_does_not_grow_with_the_tenants_that_wait(postgres: Cluster, migrated: str) -> None:
    pages: list[int] = []
    for count in (_FEW, _MANY):
        name = f"tenants_{count}"
        url = postgres.create_database(name, migrated)
        postgres.sql(_FILL.replace("n % 5", "n").format(count) + "VACUUM ANALYZE", name)
        values = [500, "s", _H, [10], [""], [None], "{}", "{}", "{}", "{}", 0]
        pages.append(await pages_read(url, STATEMENTS["CLAIM_LOOK"], values))
        postgres.drop_database(name)
    assert pages[1] <= pages[0] + 30  # for each of ten tenants there are two probes
