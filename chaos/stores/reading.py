"""A store's account, from what it says to a few queries that every SQL store understands."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from chaos.evidence import Change, Input, Row, Store, Work
from chaos.history import FAILED, TIMEOUT

__all__ = ["WORKING", "account", "queries"]

JSON = Any

_QUERIES: Final = {
    "changes": "SELECT seq, before, after, old_version, version, old_updated, updated FROM audit ORDER BY position",
    "events": "SELECT task_seq, kind FROM {0}event",
    "runs": "SELECT task_seq FROM {0}run",
    "tasks": "SELECT seq, id, name, params, status, version, updated_at, result, error FROM {0}task",
    "inputs": "SELECT id, key, state, response FROM {0}input AS input JOIN {0}task AS task ON seq = task_seq",
    "works": "SELECT id, entry.name, state, value FROM {0}entry AS entry JOIN {0}task AS task ON seq = task_seq "
    "WHERE verb = 'external'",
    "sessions": "SELECT id FROM {0}session",
    "held": "SELECT task_seq FROM {0}run WHERE session IS NOT NULL",
    **{
        f"orphans of {table}": f"SELECT DISTINCT task_seq FROM {{0}}{table} "
        "WHERE task_seq NOT IN (SELECT seq FROM {0}task)"
        for table in ("run", "input", "entry", "event")
    },
}
WORKING: Final = "SELECT count(*) FROM {0}task WHERE status = 'working'"


def queries(prefix: str = "") -> dict[str, str]:
    """By what they are about. `prefix`: of the tables' names, but for the audit's."""
    return {name: query.format(prefix) for name, query in _QUERIES.items()}


def account(found: Mapping[str, Sequence[Any]], integrity: Iterable[str]) -> Store:
    """What the store holds. `found`: the rows that each query yields. `integrity`: what else is wrong with it."""
    changes: defaultdict[int, list[Change]] = defaultdict(list)
    for seq, *change in found["changes"]:
        changes[seq].append(Change(*change))
    events: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for seq, kind in found["events"]:
        events[seq][kind] += 1
    runs = {seq for (seq,) in found["runs"]}
    orphans = [f"{len(rows)} {name}" for name, rows in found.items() if _orphans(name, rows)]
    return Store(
        {row[1]: _row(row, changes[row[0]], events[row[0]], runnable=row[0] in runs) for row in found["tasks"]},
        {(id_, key): _input(state, response) for id_, key, state, response in found["inputs"]},
        {(id_, name): Work(state, _text(state, json.loads(value))) for id_, name, state, value in found["works"]},
        len(found["sessions"]),
        len(found["held"]),
        "; ".join([*integrity, *orphans]) or "ok",
    )


def _orphans(name: str, rows: Sequence[Any]) -> bool:
    return name.startswith("orphans") and bool(rows)


def _row(row: Sequence[Any], changes: Sequence[Change], events: Mapping[str, int], *, runnable: bool) -> Row:
    _, id_, name, params, status, version, updated, result, error = row
    label = json.loads(params)["arguments"]["label"]
    end, failure = json.loads(result or "null"), json.loads(error or "null")
    return Row(id_, name, label, status, version, updated, end, failure, changes, runnable, events)


def _input(state: str, response: str | None) -> Input:
    return Input(state, json.loads(response)["content"]["text"] if response else None)


def _text(state: str, value: JSON) -> str | None:
    if state == "started":
        return None
    end = value["value"]
    if state == "done":
        return end
    return TIMEOUT if end["type"] == "TimeoutError" else f"{FAILED}: {end['message']}"
