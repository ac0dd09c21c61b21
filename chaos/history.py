"""What clients sent and were told: every exchange, and from them each task as its clients know it.

An exchange has two instants, of the one clock of the client's process, which nobody lies to: when it was sent and when
its answer was there. Of two exchanges one came before the other only if it was over before the other was sent. One
that got no answer is never over: a server that was stopped may still carry it out when it goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from math import inf
from typing import Any, Final

__all__ = [
    "EXTERNAL",
    "FAILED",
    "TENANT_HEADER",
    "TERMINAL",
    "TIMEOUT",
    "WATCHED",
    "Answer",
    "Exchange",
    "Read",
    "Record",
    "Word",
    "lost",
    "records",
    "words",
]

JSON = Any

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
TENANT_HEADER: Final = "x-chaos-tenant"
EXTERNAL: Final = "external"
"""The method of an exchange in which another system says how its work ended. Its errors have codes of HTTP's."""
WATCHED: Final = "watched"
"""The name of work that is looked at now and then, by a tool, and does not report."""
FAILED: Final = "failed"
TIMEOUT: Final = "timeout"
"""What comes of a step that failed, and of external work that was not done in time."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and what came back: a result, an error, or neither (then `received` is infinite).

    `params` are those of the request without its `_meta`. `server`: whom it went to. `key`: the idempotency key.
    """

    server: str
    method: str
    params: JSON
    sent: float
    received: float = inf
    result: JSON = None
    error: JSON = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A task as an answer showed it, also the one that created it."""

    sent: float
    received: float
    task: JSON

    @property
    def over(self) -> bool:
        return self.task["status"] in TERMINAL

    @property
    def updated(self) -> datetime:
        return datetime.fromisoformat(self.task["lastUpdatedAt"])

    @property
    def asked(self) -> dict[str, JSON]:
        return self.task.get("inputRequests", {})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that a client gave. Acknowledged if `received` is finite."""

    sent: float
    received: float
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Word:
    """What another system said of its work `name`: accepted, refused (it had ended otherwise), or nobody knows.

    `text` is what the tool makes of it.
    """

    sent: float
    received: float
    name: str
    text: str
    refused: bool

    @property
    def accepted(self) -> bool:
        return self.received < inf and not self.refused


@dataclass(slots=True)
class Record:
    """A task whose handle a client received, at `made` for the first time."""

    id: str
    kind: str
    label: str
    made: float
    reads: list[Read] = field(default_factory=list[Read])
    """In no order."""
    answers: list[Answer] = field(default_factory=list[Answer])
    cancelled: float = inf
    """When the first cancel was sent."""

    @property
    def final(self) -> Read | None:
        """The first read that showed the end, in the order of arrival."""
        return min((read for read in self.reads if read.over), key=lambda read: read.received, default=None)

    @property
    def seconds(self) -> float:
        """From the handle to the first sight of the end."""
        return inf if self.final is None else self.final.received - self.made


def records(exchanges: Iterable[Exchange]) -> dict[str, Record]:
    """Every task of which a client has a handle, by id."""
    found: dict[str, Record] = {}
    ordered = sorted(exchanges, key=lambda each: each.sent)
    for exchange in ordered:
        if exchange.method == "tools/call" and exchange.result is not None:
            task_id = exchange.result["taskId"]
            name, label = exchange.params["name"], exchange.params["arguments"]["label"]
            record = found.setdefault(task_id, Record(task_id, name, label, exchange.received))
            record.made = min(record.made, exchange.received)
            # A handle that is given once more does not tell how the task ended.
            if exchange.result["status"] not in TERMINAL:
                record.reads.append(_read(exchange))
    for exchange in ordered:
        if exchange.method != "tools/call" and exchange.params["taskId"] in found:
            _add(found[exchange.params["taskId"]], exchange)
    return found


def words(exchanges: Iterable[Exchange]) -> dict[str, list[Word]]:
    """What other systems said, by the task's id."""
    found: dict[str, list[Word]] = {}
    for exchange in exchanges:
        if exchange.method == EXTERNAL:
            refused = exchange.error is not None and exchange.error["code"] == HTTPStatus.CONFLICT
            received = exchange.received if exchange.error is None or refused else inf
            word = Word(exchange.sent, received, exchange.params["name"], exchange.params["text"], refused)
            found.setdefault(exchange.params["taskId"], []).append(word)
    return found


def lost(exchanges: Sequence[Exchange]) -> dict[str, str]:
    """Label -> tool, of the calls that brought no handle: tasks or not, nobody knows."""
    calls = [exchange for exchange in exchanges if exchange.method == "tools/call"]
    found = {exchange.params["arguments"]["label"] for exchange in calls if exchange.result is not None}
    labels = {exchange.params["arguments"]["label"]: exchange.params["name"] for exchange in calls}
    return {label: name for label, name in labels.items() if label not in found}


def _read(exchange: Exchange) -> Read:
    return Read(exchange.sent, exchange.received, exchange.result)


def _add(record: Record, exchange: Exchange) -> None:
    if exchange.method == "tasks/get" and exchange.result is not None:
        record.reads.append(_read(exchange))
    elif exchange.method == "tasks/cancel":
        record.cancelled = min(record.cancelled, exchange.sent)
    elif exchange.method == "tasks/update":
        # An update that was refused for now may have been stored all the same: its outcome is as unknown as without
        # any answer.
        received = inf if exchange.result is None else exchange.received
        for key, response in exchange.params["inputResponses"].items():
            record.answers.append(Answer(exchange.sent, received, key, response["content"]["text"]))
