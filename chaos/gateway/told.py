"""What clients of the gateways sent and were told: the only account of a storm that counts for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

__all__ = ["Asked", "Frame", "Task", "Why", "accepted"]

JSON = Any


class Why(StrEnum):
    """How a request was meant."""

    OWN = "own"
    STRANGER = "stranger's"
    """About a task of somebody else's."""
    HUNG_UP = "hung up on"
    TAKEN_BACK = "taken back by notifications/cancelled"
    LAST = "last"
    """After the storm, when everything is in order."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and what came back: a result, an error, or neither. `about`: the gateway's id of a task, or a label.

    `key`: whether the call had an idempotency key.
    """

    owner: str
    gateway: str
    method: str
    about: str
    why: Why
    sent: float
    received: float = inf
    result: JSON = None
    error: JSON = None
    tool: str = ""
    key: bool = False

    @property
    def took_back(self) -> bool:
        return self.why in (Why.HUNG_UP, Why.TAKEN_BACK)


@dataclass(frozen=True, slots=True)
class Frame:
    """What a stream of `owner`'s, who asked for the tasks `asked`, said of a task."""

    owner: str
    asked: frozenset[str]
    task_id: str
    status: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task whose handle a client has got: by the gateway's id. `tool`: as clients call it."""

    id: str
    owner: str
    tool: str
    label: str


def accepted(asked: Iterable[Asked]) -> dict[str, list[Task]]:
    """The handles that clients have got, by their ids. Each should have one task."""
    found: dict[str, list[Task]] = {}
    for each in asked:
        if each.method == "tools/call" and each.result is not None and each.result.get("resultType") == "task":
            task = Task(each.result["taskId"], each.owner, each.tool, each.about)
            known = found.setdefault(task.id, [])
            if task not in known:
                known.append(task)
    return found
