"""What becomes of tasks: none is lost or made up, and each ends once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.case import Case, Found, bare, end, in_order, token
from chaos.effects import Effect
from chaos.history import TERMINAL
from chaos.kinds import KINDS

__all__ = [
    "a_key_is_one_task",
    "a_task_ends_as_its_tool_does",
    "a_terminal_status_stays",
    "lost_ones_settle",
    "no_task_is_lost",
    "nothing_is_made_up",
    "one_completion",
    "time_does_not_run_backwards",
]


def no_task_is_lost(case: Case) -> Found:
    for record in case.records.values():
        row = case.store.rows.get(record.id)
        if row is None:
            yield record.label, f"the store does not hold it ({record.id})"
        elif record.final is None:
            yield record.label, f"it did not end: {row.status} after {len(record.reads)} reads ({record.id})"
    for exchange in case.exchanges:
        if exchange.method == "tasks/get" and exchange.error is not None and exchange.error.get("code") == -32602:
            yield exchange.params["taskId"], f"{exchange.server} does not know it: {exchange.error}"


def nothing_is_made_up(case: Case) -> Found:
    labels: dict[str, str] = {}
    for row in case.store.rows.values():
        if row.label in labels:
            yield row.label, f"one call became two tasks: {labels[row.label]}, {row.id}"
        labels[row.label] = row.id
        if row.id not in case.records and row.label not in case.lost:
            yield row.label, f"nobody asked for this task ({row.id})"


def lost_ones_settle(case: Case) -> Found:
    """Tasks whose handles nobody got end too, or wait for answers that will not come."""
    for row in case.store.rows.values():
        if row.id not in case.records and row.status == "working":
            yield row.label, f"it neither ended nor waits ({row.id})"


def one_completion(case: Case) -> Found:
    for row in case.store.rows.values():
        ends = [change for change in row.changes if change.after in TERMINAL and change.before not in TERMINAL]
        if len(ends) != (row.status in TERMINAL):
            yield row.label, f"it is {row.status}, and ended {len(ends)} times"
        named = token(row)
        if named is not None:
            yield from ((row.label, what) for what in _usurped(named, case.done.get(row.id, ())))


def _usurped(named: str, done: Sequence[Effect]) -> Iterator[str]:
    """What is wrong with that run's having completed its task.

    It did its last thing, and no later attempt had begun before: its claim would have held no more.
    """
    last = next((number for number, each in enumerate(done) if each.event == "end" and each.run == named), None)
    if last is None:
        yield f"what is stored names the run {named}, which did not come to its end"
        return
    for each in done[:last]:
        if each.event == "start" and each.attempt > done[last].attempt:
            yield f"what is stored is of {named}, a ghost: {each.run} had begun before that ended, as a later attempt"


def a_terminal_status_stays(case: Case) -> Found:
    for row in case.store.rows.values():
        for change in row.changes:
            if change.before in TERMINAL:
                yield row.label, f"it was {change.before} and was written to: {change}"
    for record in case.records.values():
        if record.final is None:
            continue
        expected = bare(record.final.task)
        for read in record.reads:
            if read.over and bare(read.task) != expected:
                yield record.label, f"two ends: {expected} and {bare(read.task)}"
            elif not read.over and read.sent > record.final.received:
                yield record.label, f"it was {record.final.task['status']}, and then {read.task['status']}"


def a_key_is_one_task(case: Case) -> Found:
    """Also one that several calls came under at once, on several servers, some of which died."""
    handles: dict[str, str] = {}
    for exchange in case.exchanges:
        if exchange.key is not None and exchange.result is not None:
            task_id = exchange.result["taskId"]
            if handles.setdefault(exchange.key, task_id) != task_id:
                yield exchange.params["arguments"]["label"], f"one key, two tasks: {handles[exchange.key]}, {task_id}"


def time_does_not_run_backwards(case: Case) -> Found:
    for record in case.records.values():
        for earlier, later in in_order(record.reads):
            if later.updated < earlier.updated:
                before, after = earlier.task["lastUpdatedAt"], later.task["lastUpdatedAt"]
                yield record.label, f"lastUpdatedAt went from {before} to {after}"
    for row in case.store.rows.values():
        # A store may write two changes as one, if they came at once.
        became = [1, *(change.version for change in row.changes)]
        was = [*(change.old_version for change in row.changes), row.version]
        if became != was or became != sorted(set(became)):
            yield row.label, f"the versions became {became}, and were then {was}"
        if any(change.updated < change.old_updated for change in row.changes):
            yield row.label, "the time of its last update went back in the store"


def a_task_ends_as_its_tool_does(case: Case) -> Found:
    for record in case.records.values():
        if record.final is None:
            continue
        task = record.final.task
        how = end(task)
        if how == "cancelled":
            if record.cancelled > record.final.received:
                yield record.label, "it was cancelled, and nobody asked for that"
        elif how not in KINDS[record.kind].ends:
            yield record.label, f"it ended as {how}: {bare(task)}"
        elif how == "completed" and task["result"]["structuredContent"]["label"] != record.label:
            yield record.label, f"it has another task's result: {task['result']['structuredContent']}"
