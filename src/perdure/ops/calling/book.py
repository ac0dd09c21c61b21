"""Where the journal of handles lies, and which of its records an id on a command line means."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from perdure.client import Journal, Record
from perdure.ops import text

from . import endpoint
from .typed import Unfit

__all__ = [
    "JOURNAL",
    "entry",
    "find",
    "find_all",
    "forget",
    "identity",
    "newest_open",
    "opened",
    "place",
    "rows",
    "state",
]

JOURNAL: Final = "PERDURE_JOURNAL"
_SHOWN: Final = 5
"""Candidates that are told."""


def place(said: str | None) -> Path:
    """The journal's file: the one that is named, or the user's own."""
    if said:
        return Path(said).expanduser()
    home = os.environ.get("XDG_STATE_HOME", "")
    state_home = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
    return state_home / "perdure" / "handles.db"


def opened(said: str | None) -> Journal:
    """The journal, and its folder, if that is the user's own.

    Raises:
        JournalUnusable: it can't be used.
        Unfit: there is no such folder.
    """
    file = place(said)
    if not said:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    elif not file.parent.is_dir():
        raise Unfit(f"there is no folder {file.parent} for the journal")
    return Journal(file)


def identity(record: Record) -> str:
    """What a record is called: its task's id, or of a call without an answer the key."""
    return record.task_id or record.key


def state(record: Record, journal: Journal) -> str:
    """What the journal knows of it: how it ended; else that it is open, being called, or that nobody knows whether."""
    if record.status is not None or record.task_id is not None:
        return record.status or "open"
    return "calling" if journal.is_busy(record) else "unsure"


def find(records: Iterable[Record], wanted: str) -> Record:
    """The record of an id, or of the beginning of one, for a command that can be told which server is meant.

    Raises:
        Unfit: there is none, or there are several.
    """
    found = find_all(records, wanted, otherwise=", or say --server")
    if len(found) > 1:
        raise Unfit(f"{_candidates(wanted, found)}: say which by --server")
    return found[0]


def find_all(records: Iterable[Record], wanted: str, *, otherwise: str = "") -> list[Record]:
    """The records of an id, or of the beginning of one that no other id has: one of each server that it is at.

    A task has one id at all gateways that share a table of routes. `otherwise`: what else one could say.

    Raises:
        Unfit: there is none, or the beginning is that of several ids.
    """
    records = list(records)
    exact = [each for each in records if wanted in (each.task_id, each.key)]
    found = exact or [each for each in records if wanted and identity(each).startswith(wanted)]
    if not found:
        raise Unfit(f"the journal knows no task {wanted!r}: see `perdure ls`{otherwise}")
    if len({identity(each) for each in found}) > 1:
        raise Unfit(_candidates(wanted, found))
    return found


def _candidates(wanted: str, found: Iterable[Record]) -> str:
    several = [f"{identity(each)} at {endpoint.shown(each.server)}" for each in found]
    return f"{wanted!r} may be {', '.join(several[:_SHOWN])}"


def newest_open(records: Iterable[Record], journal: Journal) -> Record:
    """The newest call that is not known to be over, and that no other process is just making.

    Raises:
        Unfit: there is none.
    """
    records = list(records)
    found = [each for each in records if state(each, journal) in {"open", "unsure"}]
    # The server may know it with another token.
    found = found or [each for each in records if each.status == "lost"]
    if not found:
        raise Unfit("the journal has no task that is open")
    return found[-1]


def forget(journal: Journal, wanted: Iterable[str]) -> list[str]:
    """Delete the records of these ids, all or none, at whichever servers; what they were called.

    Raises:
        Unfit: one is not there, or is of a call that another process is just making.
    """
    records = journal.records()
    found = [record for each in dict.fromkeys(wanted) for record in find_all(records, each)]
    for each in found:
        if state(each, journal) == "calling":
            raise Unfit(f"{identity(each)} is a call that another process is just making")
    for each in found:
        journal.forget(each)
    return [*dict.fromkeys(map(identity, found))]


def entry(record: Record, journal: Journal, now: float) -> dict[str, Any]:
    """A record in plain values."""
    return {
        "id": identity(record),
        "task": record.task_id,
        "tool": record.tool,
        "status": state(record, journal),
        "server": endpoint.shown(record.server),
        "key": record.key,
        "age_s": round(max(0.0, now - record.begun_at), 3),
    }


def rows(entries: Iterable[dict[str, Any]]) -> list[list[str]]:
    """The same as rows of a table."""
    return [[each["id"], each["tool"], each["status"], text.span(each["age_s"]), each["server"]] for each in entries]
