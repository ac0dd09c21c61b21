"""The mutants: a plugin of pytest that takes away one safeguard, by name, before any test is collected.

    python -m pytest -p tests.mutants.plugin --mutant fence SELECTION

Each changes a text that stands in our source. If that text is not there any more the run ends at once with a usage
error: a mutant that changes nothing would prove nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Final

import pytest

from perdure.domain import lifecycle
from perdure.domain.lifecycle import Kind
from perdure.domain.model import Status
from perdure.store import sealing, verbs
from perdure.store.postgres import sql as postgres_sql
from perdure.store.postgres import sql_operating as postgres_sql_operating
from perdure.store.sqlite import routes, shared, sql, sql_operating, sql_routes, writer

__all__ = ["MUTANTS", "change", "rewrite"]


def change(module: ModuleType, constant: str, old: str, new: str) -> None:
    """Replace a part of a text constant.

    Raises:
        pytest.UsageError: it is not there exactly once.
    """
    setattr(module, constant, _replaced(getattr(module, constant), old, new, f"{module.__name__}.{constant}"))


def rewrite(module: ModuleType, function: str, old: str, new: str) -> None:
    """Replace a part of a function's source, and the function.

    Raises:
        pytest.UsageError: it is not there exactly once.
    """
    where = f"{module.__name__}.{function}"
    source = _replaced(inspect.getsource(getattr(module, function)), old, new, where)
    exec(compile(source, where, "exec", annotations.compiler_flag, dont_inherit=True), vars(module))


def _replaced(text: str, old: str, new: str, where: str) -> str:
    if text.count(old) != 1:
        raise pytest.UsageError(f"The mutant is stale: {where} has {old!r} {text.count(old)} times")
    return text.replace(old, new)


def fence() -> None:
    """Whoever holds the run may write, whichever claim he has."""
    change(sql, "RUN_HELD", "fence = ?", "? IS NOT NULL")


def fence_of_a_record() -> None:
    """The same, where verbs work on records."""
    rewrite(verbs, "held", "(run.session, run.fence) != (by.session, by.fence)", "run.session != by.session")


def anybodys_route() -> None:
    """A route is found by its id alone."""
    change(sql_routes, "ROUTE_OWNED", "tenant = ? AND principal = ?", "? IS NOT NULL AND ? IS NOT NULL")


def shared_route() -> None:
    """Whoever a backend says it to has the task of somebody else."""
    rewrite(routes, "_lay", "standing is None or standing.owner != route.owner", "standing is None")


def impatient_purge() -> None:
    """A route is purged by the clock, though nobody has asked whether its task is there yet."""
    over = "ended_at IS NOT NULL AND max(coalesce(expires_at, ended_at), ended_at)"
    change(sql_routes, "ROUTE_OVER", over, "coalesce(expires_at, ended_at)")


def late_lock() -> None:
    """A transaction looks first, and takes the lock when it writes."""
    rewrite(writer, "_transaction", '"BEGIN IMMEDIATE"', '"BEGIN"')


def task_first() -> None:
    """The task is written before its run."""
    run = """
    if changed.status.terminal:
        tx.run(sql.RUN_DELETE, task.seq)"""
    task = """
    if not tx.run(sql.TASK_UPDATE, *rows.update_values(changed, tx.codec)):
        raise IllegalTransition(f"Task number {task.seq} is already over")"""
    rewrite(shared, "apply", run + task, task + run)


def unguarded_row() -> None:
    """A task that is over may be written to."""
    change(sql, "TASK_UPDATE", " AND status NOT IN ('completed', 'failed', 'cancelled')", "")


def unguarded_rows() -> None:
    """The same, in a batch."""
    change(postgres_sql, "FLUSH", " AND task.status IN ('working', 'input_required')", "")


def unguarded_discard() -> None:
    """What an operator throws away may still be running."""
    change(sql_operating, "TASK_DISCARDED", " AND status IN ('completed', 'failed', 'cancelled')", "")


def unguarded_discards() -> None:
    """The same, in PostgreSQL."""
    change(postgres_sql_operating, "TASK_DISCARD", " AND status IN ('completed', 'failed', 'cancelled')", "")


def unbound() -> None:
    """A sealed value is one wherever it is put."""
    rewrite(sealing, "_bound", "(id, owner.tenant, owner.principal, *what)", "what[:0]")


def of_nobody() -> None:
    """A sealed value is its task's, whoever's that is said to be."""
    rewrite(sealing, "_bound", "owner.tenant, owner.principal, ", "")


def arrow_out_of_an_end() -> None:
    """A task that is completed may fail."""
    if (arrow := (Status.COMPLETED, Kind.FAIL)) in lifecycle.TRANSITIONS:
        raise pytest.UsageError("The mutant is stale: the arrow is there")
    arrows = MappingProxyType({**lifecycle.TRANSITIONS, arrow: Status.FAILED})
    pytest.MonkeyPatch().setattr(lifecycle, "TRANSITIONS", arrows)


MUTANTS: Final[Mapping[str, Callable[[], None]]] = {
    mutant.__name__: mutant
    for mutant in (
        fence,
        fence_of_a_record,
        anybodys_route,
        shared_route,
        impatient_purge,
        late_lock,
        task_first,
        unguarded_row,
        unguarded_rows,
        unguarded_discard,
        unguarded_discards,
        unbound,
        of_nobody,
        arrow_out_of_an_end,
    )
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant", choices=sorted(MUTANTS), help="the safeguard that is taken away; none by default")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("mutant")
    if name is not None:
        MUTANTS[name]()
