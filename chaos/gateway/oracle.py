"""The rules, and what breaks them: what clients were told, held against the table of routes and our backend's store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from chaos.oracle import Violation

from .told import Asked, Frame, Task, Why, accepted

__all__ = ["RULES", "Evidence", "Route", "Row", "judge"]

JSON = Any

NOT_FOUND: Final = -32602
"""That there is no such task, in a server's words."""


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table of routes."""

    id: str
    principal: str
    backend: str
    backend_task_id: str


@dataclass(frozen=True, slots=True)
class Row:
    """A task of our backend, as its store has it."""

    id: str
    principal: str
    label: str
    status: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All accounts. `cancelled`: the gateway's ids of the tasks for which `tasks/cancel` was sent by their owners."""

    asked: Sequence[Asked]
    frames: Sequence[Frame]
    cancelled: AbstractSet[str]
    routes: Mapping[str, Route]
    rows: Mapping[str, Row]
    wrong: Sequence[str] = ()
    oddities: Sequence[str] = ()

    @property
    def tasks(self) -> dict[str, list[Task]]:
        return accepted(self.asked)


Found = Iterator[tuple[str, str]]


def is_reachable(evidence: Evidence) -> Found:
    """By their owners, at both gateways; and what an owner hears while all is on fire is never that there is none."""
    tasks = evidence.tasks
    for task_id in tasks:
        if task_id not in evidence.routes:
            yield task_id, "its route is gone"
    for each in evidence.asked:
        if each.about not in tasks or each.owner != tasks[each.about][0].owner:
            continue
        if each.method == "tasks/get" and _says_there_is_none(each.error):
            yield each.about, f"{each.gateway} told its owner that there is none: {each.error} ({each.why})"
        elif each.why is Why.LAST and each.result is None:
            yield each.about, f"{each.gateway} does not show it after the storm: {each.error}"


def is_reached_by_no_other(evidence: Evidence) -> Found:
    """Neither by asking nor by listening, and nothing tells that there is one."""
    tasks = evidence.tasks
    for each in evidence.asked:
        if each.why is not Why.STRANGER:
            continue
        if each.result is not None:
            yield each.about, f"{each.owner} got {each.result} from {each.gateway} by {each.method}"
        elif each.error is not None and not _says_there_is_none(each.error) and not _is_of_the_gateway(each.error):
            yield each.about, f"{each.owner} was told more than that there is none: {each.error}"
    for frame in evidence.frames:
        if frame.task_id not in tasks:
            yield frame.task_id, f"a stream of {frame.owner} named a task of which nobody has a handle"
        elif frame.task_id not in frame.asked or tasks[frame.task_id][0].owner != frame.owner:
            yield frame.task_id, f"a stream of {frame.owner} told of it: {frame.status}"


def is_cancelled_by_its_owner_alone(evidence: Evidence) -> Found:
    """A task is cancelled by `tasks/cancel` and nothing else.

    But for one that the gateway itself has given up, since no route could be written and nobody will ever ask for it:
    such a one has no route, and its call had no key.
    """
    for each in evidence.asked:
        if (
            each.result is not None
            and each.result.get("status") == "cancelled"
            and each.about not in evidence.cancelled
        ):
            yield each.about, f"it is cancelled, and nobody cancelled it ({each.gateway})"
    routes = {route.backend_task_id: route for route in evidence.routes.values() if route.backend == "ours"}
    keyed = {each.about for each in evidence.asked if each.method == "tools/call" and each.key}
    for row in evidence.rows.values():
        route = routes.get(row.id)
        if row.status != "cancelled" or (route is not None and route.id in evidence.cancelled):
            continue
        if route is not None or row.label in keyed:
            calls = [str(each.why) for each in evidence.asked if each.about == row.label]
            yield row.label, f"our backend has it cancelled, and nobody cancelled it; its calls: {', '.join(calls)}"


def is_its_callers_own(evidence: Evidence) -> Found:
    """An id is one task for ever: of one owner, one call, and with the result of that call."""
    tasks = evidence.tasks
    for task_id, known in tasks.items():
        if len(known) > 1:
            yield task_id, f"it was given out for several calls: {known}"
        route = evidence.routes.get(task_id)
        if route is None:
            continue
        task, row = known[0], evidence.rows.get(route.backend_task_id) if route.backend == "ours" else None
        if not _is_of(task.owner, route.principal):
            yield task_id, f"its route is that of {route.principal}"
        if not task.tool.startswith(route.backend):
            yield task_id, f"{task.tool} led to the backend {route.backend}"
        if row is not None and (row.label != task.label or not _is_of(task.owner, row.principal)):
            yield task_id, f"our backend has {row.label} of {row.principal} behind it"
    for each in evidence.asked:
        if each.method == "tasks/get" and each.result is not None and each.why is not Why.STRANGER:
            yield from _shown(each, tasks)


def _shown(each: Asked, tasks: Mapping[str, Sequence[Task]]) -> Found:
    if each.result.get("taskId") != each.about:
        yield each.about, f"{each.gateway} showed {each.result.get('taskId')} instead"
    if each.result["status"] == "completed" and each.about in tasks:
        label = each.result["result"]["structuredContent"]["label"]
        if label != tasks[each.about][0].label:
            yield each.about, f"it has the result of {label}"


def is_one_under_its_key(evidence: Evidence) -> Found:
    """A call that was taken back and made again under its key is one task of our backend's."""
    keyed = {each.about for each in evidence.asked if each.method == "tools/call" and each.key}
    labels = [row.label for row in evidence.rows.values() if row.label in keyed]
    for label in {label for label in labels if labels.count(label) > 1}:
        yield label, f"our backend has {labels.count(label)} tasks of it"


def no_process_ends_by_itself(evidence: Evidence) -> Found:
    for what in evidence.wrong:
        yield "fleet", what


def logs_are_in_order(evidence: Evidence) -> Found:
    for what in evidence.oddities:
        yield "log", what


RULES: Final[Mapping[str, Callable[[Evidence], Found]]] = {
    "no accepted task is unreachable": is_reachable,
    "no task is reached by another owner": is_reached_by_no_other,
    "a request that is taken back cancels no task": is_cancelled_by_its_owner_alone,
    "a task is its caller's own": is_its_callers_own,
    "a key is one task": is_one_under_its_key,
    "no process ends by itself": no_process_ends_by_itself,
    "logs are in order": logs_are_in_order,
}


def judge(evidence: Evidence) -> list[Violation]:
    """Everything that breaks a rule, in the order of the rules."""
    return [Violation(name, subject, what) for name, rule in RULES.items() for subject, what in rule(evidence)]


def _says_there_is_none(error: JSON) -> bool:
    return error is not None and error.get("code") == NOT_FOUND


def _is_of_the_gateway(error: JSON) -> bool:
    return isinstance(error.get("data"), dict) and error["data"].get("gateway") is True


def _is_of(owner: str, principal: str) -> bool:
    """Whether the token of `owner` is behind a principal, as the table has it."""
    return f'"{owner}"' in principal
