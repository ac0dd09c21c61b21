"""The evidence as rules look at it: by task, and what it says in a word."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

from .effects import Effect
from .evidence import Evidence, Row, Store
from .history import Exchange, Read, Record, Word, lost, records, words

__all__ = ["Case", "Found", "bare", "end", "in_order", "runs", "stored_end", "token"]

JSON = Any

Found = Iterator[tuple[str, str]]
"""What a rule yields: the subject, and what was found."""

_FAILURES: Final = {"expired": "expired", "giving up": "exhausted"}
"""Words in the message of a task that failed without its tool's having said so."""


class Case:
    """Evidence, by task."""

    def __init__(self, evidence: Evidence) -> None:
        self.exchanges: Sequence[Exchange] = evidence.exchanges
        self.store: Store = evidence.store
        self.wrong: Sequence[str] = evidence.wrong
        self.oddities: Sequence[str] = evidence.oddities
        self.true_time: bool = evidence.true_time
        self.records: dict[str, Record] = records(evidence.exchanges)
        self.lost: dict[str, str] = lost(evidence.exchanges)
        self.words: dict[str, list[Word]] = words(evidence.exchanges)
        self.effects: Sequence[Effect] = evidence.effects

    @cached_property
    def done(self) -> dict[str, list[Effect]]:
        """What tools did, by task."""
        found: defaultdict[str, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            found[effect.task].append(effect)
        return found

    def named(self, *events: str) -> Iterator[tuple[str, str, list[Effect]]]:
        """The effects of these kinds in order: task, name, and those that share both."""
        for task_id, done in self.done.items():
            by_name: defaultdict[str, list[Effect]] = defaultdict(list)
            for effect in done:
                if effect.event in events:
                    by_name[effect.name].append(effect)
            for name, effects in by_name.items():
                yield task_id, name, effects


def in_order(reads: Iterable[Read]) -> Iterator[tuple[Read, Read]]:
    """Each read with the newest that was there before it was sent, whoever read it."""
    by_sending = sorted(reads, key=lambda read: read.sent)
    arriving = sorted(by_sending, key=lambda read: read.received)
    newest: Read | None = None
    arrived = 0
    for read in by_sending:
        while arriving[arrived].received < read.sent:
            if newest is None or arriving[arrived].updated > newest.updated:
                newest = arriving[arrived]
            arrived += 1
        if newest is not None:
            yield newest, read


def bare(task: JSON) -> JSON:
    """A task without the envelope of the response that carried it."""
    return {name: value for name, value in task.items() if name not in ("resultType", "_meta")}


def end(task: JSON) -> str:
    """How a task ended: its status, or error, overrun, expired or exhausted, which are no statuses."""
    if task["status"] == "completed" and task["result"].get("isError"):
        text = "".join(part["text"] for part in task["result"]["content"])
        return "overrun" if "did not finish" in text else "error"
    if task["status"] == "failed":
        message = task["error"]["message"]
        return next((end for words, end in _FAILURES.items() if words in message), "failed")
    return task["status"]


def token(row: Row) -> str | None:
    """The run that the stored end names; None if no run brought it about."""
    match stored_end(row):
        case "completed":
            return row.result["structuredContent"]["run"]
        case "error":  # the SDK puts a sentence before its text
            return row.result["content"][0]["text"].rpartition(" ")[2]
        case "failed":
            return row.error["message"]
        case _:
            return None


def stored_end(row: Row) -> str:
    """How the store says that a task ended; its status if it did not."""
    return end({"status": row.status, "result": row.result, "error": row.error})


def runs(effects: Iterable[Effect]) -> str:
    return ", ".join(f"{each.run} (attempt {each.attempt}, process {each.pid})" for each in effects)
