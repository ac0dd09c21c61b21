"""What was found, put into words: plain text in lines and columns, for people and for pipes alike.

What is not in a table may still have in it what a terminal would obey: whoever prints the lines sees to that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from perdure.domain import ids
from perdure.domain.model import Status
from perdure.domain.timeline import EventKind
from perdure.engine import sealers
from perdure.ops import text

from .plain import Plain
from .times import age, instant, now

__all__ = [
    "EVENTS",
    "say_cancelled",
    "say_inspection",
    "say_list",
    "say_purged",
    "say_retried",
    "say_stats",
    "say_status",
]


_LIST: Final = ("task", "tool", "status", "run", "attempt", "age", "unchanged", "owner")

EVENTS: Final = {
    EventKind.RETRY: "attempt failed: {}",
    EventKind.STEP_RETRY: "step failed: {}",
    EventKind.DEATH: "worker died ({})",
    EventKind.OVERRUN: "ran past its deadline ({})",
    EventKind.CANCEL: "asked to stop",
    EventKind.UNANSWERED: "question timed out: {}",
    EventKind.SETTLED: "external work ended: {}",
    EventKind.HASTEN: "made due by an operator",
}


def say_status(found: Plain) -> Iterator[str]:
    """The lines of a status."""
    yield f"store {found['store']}"
    yield ""
    at = now()
    rows = [
        (each["session"], f"{each['host']}:{each['pid']}", _lease(each, at), ", ".join(each["tools"]) or "nothing")
        for each in found["workers"]
    ]
    yield from text.table(("worker", "process", "lease", "runs"), rows, empty="no worker")
    yield ""
    yield from _loads(found["tools"])
    for handler in found["unclaimable"]:
        yield f"unclaimable: no worker has {handler}"
    if routes := found.get("routes"):
        yield f"routes of gateways: {routes}"
    live = ((each["sealing"], f"{each['host']}:{each['pid']}") for each in found["workers"] if each["state"] == "alive")
    yield from sealers.summary(live)


def say_inspection(found: Plain) -> Iterator[str]:
    """The lines of an inspection."""
    run = found["run"]
    yield f"task      {found['task']}"
    yield f"tool      {found['tool']}"
    yield f"owner     {_owner(found)}"
    yield ", ".join((f"status    {found['status']}", *_remarks(found)))
    if found["error"] is not None:
        yield f"error     {_why(found['error'])}"
    yield f"created   {instant(found['created_at'])}"
    yield f"changed   {instant(found['updated_at'])}"
    yield f"expires   {'never' if found['expires_at'] is None else instant(found['expires_at'])}"
    if run is not None:
        yield f"attempt   {run['attempt']} (failures {run['failures']}, deaths of workers {run['deaths']})"
        yield f"run       {_where(run, found['tool'])}"
    yield ""
    rows = [(each["place"] or "-", each["verb"], each["name"], _until(each)) for each in found["journal"]]
    yield from text.table(("place", "verb", "name", "state"), rows, empty="no step or question")
    yield ""
    rows = [(instant(each["at"]), EVENTS[each["kind"]].format(each["detail"])) for each in found["timeline"]]
    yield from text.table(("at", "event"), rows, empty="no event")
    if "contents" in found:
        yield ""
        yield from json.dumps(found["contents"], indent=2).splitlines()


def say_list(found: Plain) -> Iterator[str]:
    """The lines of a list. Ids are shown as logs show them."""
    at = now()
    rows = [
        (
            ids.abbreviated(each["task"]),
            each["tool"],
            each["status"],
            _run(each["run"], cancelled=each["cancel_requested"]),
            "-" if each["run"] is None else str(each["run"]["attempt"]),
            age(max(0, at - each["created_at"])),
            age(max(0, at - each["updated_at"])),
            _owner(each),
        )
        for each in found["tasks"]
    ]
    yield from text.table(_LIST, rows, empty="no task")
    if found["more"]:
        yield f"these are the newest {len(rows)}; there are more: say --limit N, or which"


def _owner(task: Plain) -> str:
    return " / ".join(task["owner"][part] or "-" for part in ("tenant", "principal"))


def _run(run: Plain | None, *, cancelled: bool) -> str:
    if run is None:
        return "-"
    return f"{run['state']}, to stop" if cancelled else run["state"]


def say_stats(found: Plain) -> Iterator[str]:
    """The lines of the statistics: how many there are, and what waits."""
    yield f"store {found['store']}"
    yield ""
    at, statuses = now(), [status.value for status in Status]
    rows = [
        (
            each["tool"],
            *(str(each[status]) for status in statuses),
            age(None if each["oldest_unfinished_at"] is None else max(0, at - each["oldest_unfinished_at"])),
        )
        for each in found["tools"]
    ]
    yield from text.table(("tool", *statuses, "oldest unfinished"), rows, empty="no task")
    if rows:
        yield ""
        yield from _loads(found["tools"])


def _loads(handlers: Iterable[Plain]) -> Iterator[str]:
    rows = [
        (each["tool"], *(str(each[count]) for count in ("ready", "held", "waiting")), age(each["oldest_ready_ms"]))
        for each in handlers
        if each["ready"] or each["held"] or each["waiting"]
    ]
    yield from text.table(("tool", "ready", "held", "waiting", "oldest ready"), rows, empty="no open task")


def say_cancelled(found: Plain) -> Iterator[str]:
    """The lines of what came of cancelling; one a task."""
    if not found["tasks"]:
        yield "no task"
    for each in found["tasks"]:
        yield f"{each['task']}  {_cancelled(each)}"


def _cancelled(each: Plain) -> str:
    match each["outcome"]:
        case "cancelled":
            return "cancelled"
        case "asked":
            return "asked to stop; its code decides"
        case "over":
            return f"over before: {each['status']}"
        case _:
            return f"refused: {each['why']}"


def say_retried(found: Plain) -> Iterator[str]:
    """The line of what came of retrying."""
    if found["new"] is None:
        yield f"{found['task']}  due now"
    else:
        before = " before" if found["outcome"] == "before" else ""
        yield f"{found['task']}  over; ordered anew{before} as {found['new']}"


def say_purged(found: Plain) -> Iterator[str]:
    """The line of what was purged, or would be."""
    yield f"would purge: {found['would_purge']}" if "would_purge" in found else f"purged: {found['purged']}"


def _lease(worker: Plain, at: int) -> str:
    match worker["state"]:
        case "gone":
            return "process gone"
        case "lapsed":
            return "lapsed"
        case _:
            return f"{age(max(0, worker['lease_until'] - at))} left"


def _remarks(task: Plain) -> Iterator[str]:
    if task["tool_error"]:
        yield "tool error"
    if task["cancel_requested"]:
        yield "asked to stop"


def _why(error: Plain) -> str:
    if error["code"] is None:
        return "sealed"
    if error["message"] is None:
        return f"{error['code']}, the tool's own"
    return f"{error['code']}: {error['message']}"


def _where(run: Plain, handler: str) -> str:
    if run["session"] is not None:
        return f"held by {run['session']}{_holder(run['process'])}"
    if run["unclaimable"]:
        return f"{run['state']}, and no worker has {handler}"
    return run["state"] if run["wake_at"] is None else f"{run['state']} until {instant(run['wake_at'])}"


def _holder(process: Plain | None) -> str:
    if process is None:
        return ""
    state = {"gone": ", process gone", "lapsed": ", lease lapsed"}.get(process["state"], "")
    return f" ({process['host']}:{process['pid']}{state})"


def _until(line: Plain) -> str:
    return f"{line['state']}, until {instant(line['wake_at'])}" if "wake_at" in line else line["state"]
