"""The three accounts of one storm: what clients were told, what tools did, and what the store holds.

The store's own account includes every change of every task: a trigger, installed before the first of them, notes each
as it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .effects import Effect
from .history import Exchange

__all__ = ["Change", "Evidence", "Input", "Row", "Store", "Work"]

JSON = Any


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
    oddities: Sequence[str] = ()
    """What logs say that a storm does not explain, and secrets that they tell."""
    true_time: bool = True
    """Whether the clock that timers go by told the truth."""
