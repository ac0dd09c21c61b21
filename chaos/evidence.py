"""The three accounts of one storm: what clients were told, what tools did, and what the store holds.

The store's own account includes every change of every task: a trigger, installed before the first of them, notes each
as it is committed.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import effects
from .effects import Effect
from .history import FAILED, TIMEOUT, Exchange

__all__ = ["Change", "Evidence", "Input", "Row", "Store", "Work", "audit", "gather", "working"]

JSON = Any

_BUSY: Final = 30.0
_TRIGGER: Final = """
CREATE TABLE audit (position INTEGER PRIMARY KEY, seq, before, after, old_version, version, old_updated, updated);
CREATE TRIGGER audit AFTER UPDATE ON task BEGIN
    INSERT INTO audit (seq, before, after, old_version, version, old_updated, updated)
    VALUES (NEW.seq, OLD.status, NEW.status, OLD.version, NEW.version, OLD.updated_at, NEW.updated_at);
END;
"""


@dataclass(frozen=True, slots=True)
class Change:
    """One committed change of a task: status, version and time of the update, before and after."""

    before: str
    after: str
    old_version: int
    version: int
    old_updated: int
    updated: int


@dataclass(frozen=True, slots=True)
class Row:
    """A task as it lies in the store, with all its changes in order."""

    id: str
    kind: str
    label: str
    status: str
    version: int
    updated: int
    result: JSON = None
    error: JSON = None
    changes: Sequence[Change] = ()
    runnable: bool = False
    """Whether it has a run."""
    events: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many there are of each kind in its timeline."""


@dataclass(frozen=True, slots=True)
class Input:
    """A question as it lies in the store: outstanding, answered (with `text`) or superseded."""

    state: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """External work as it lies in the store: started, done or failed (with `text`, what the tool makes of its end)."""

    state: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """The store, once all processes have ended in order. `inputs`, `works`: by the task's id and the key or name."""

    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    inputs: dict[tuple[str, str], Input] = field(default_factory=dict[tuple[str, str], Input])
    works: dict[tuple[str, str], Work] = field(default_factory=dict[tuple[str, str], Work])
    sessions: int = 0
    held: int = 0
    """Runs that some session holds."""
    integrity: str = "ok"


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it."""

    exchanges: Sequence[Exchange]
    effects: Sequence[Effect]
    store: Store
    wrong: Sequence[str] = ()
    """What the driver saw itself: processes that ended in a way that nothing explains."""


def audit(path: Path) -> None:
    """Have the store at `path` note every change from now on."""
    with closing(sqlite3.connect(path, timeout=_BUSY)) as connection:
        connection.executescript(_TRIGGER)


def working(path: Path) -> int:
    """How many tasks are neither over nor waiting for an answer."""
    with closing(sqlite3.connect(path, timeout=_BUSY)) as connection:
        return connection.execute("SELECT count(*) FROM task WHERE status = 'working'").fetchone()[0]


def gather(exchanges: Sequence[Exchange], journal: Path, store: Path, wrong: Sequence[str]) -> Evidence:
    return Evidence(exchanges, tuple(effects.read(journal)), _look(store), wrong)


def _look(path: Path) -> Store:
    with closing(sqlite3.connect(path, timeout=_BUSY)) as connection:

        def count(query: str) -> int:
            return connection.execute(query).fetchone()[0]

        changes: dict[int, list[Change]] = {}
        for _, seq, *change in connection.execute("SELECT * FROM audit ORDER BY position"):
            changes.setdefault(seq, []).append(Change(*change))
        events: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for seq, kind in connection.execute("SELECT task_seq, kind FROM event"):
            events[seq][kind] += 1
        runs = {seq for (seq,) in connection.execute("SELECT task_seq FROM run")}
        tasks = connection.execute("SELECT seq, id, name, params, status, version, updated_at, result, error FROM task")
        rows = {
            id_: Row(
                id_,
                name,
                json.loads(params)["arguments"]["label"],
                status,
                version,
                updated,
                json.loads(result or "null"),
                json.loads(error or "null"),
                changes.get(seq, ()),
                seq in runs,
                events[seq],
            )
            for seq, id_, name, params, status, version, updated, result, error in tasks
        }
        integrity = "; ".join(row[0] for row in connection.execute("PRAGMA integrity_check"))
        held = count("SELECT count(*) FROM run WHERE session IS NOT NULL")
        questions = connection.execute(
            "SELECT id, key, state, response FROM input JOIN task ON task.seq = input.task_seq"
        )
        inputs = {
            (id_, key): Input(state, json.loads(response)["content"]["text"] if response else None)
            for id_, key, state, response in questions
        }
        external = connection.execute(
            "SELECT id, entry.name, state, value FROM entry JOIN task ON task.seq = task_seq WHERE verb = 'external'"
        )
        works = {(id_, name): Work(state, _text(state, json.loads(value))) for id_, name, state, value in external}
        return Store(rows, inputs, works, count("SELECT count(*) FROM session"), held, integrity)


def _text(state: str, value: JSON) -> str | None:
    if state == "started":
        return None
    end = value["value"]
    if state == "done":
        return end
    return TIMEOUT if end["type"] == "TimeoutError" else f"{FAILED}: {end['message']}"
