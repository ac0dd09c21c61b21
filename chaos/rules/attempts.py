"""Failures and deaths: how often a task, or a step, is tried again."""

from __future__ import annotations

from collections import Counter

from chaos.case import Case, Found, stored_end, token
from chaos.history import FAILED, TERMINAL
from chaos.kinds import DEATHS, KINDS, TRIES

__all__ = ["a_retry_ends_where_it_says", "attempts_add_up"]

_LAST_STRAW = frozenset({"error", "overrun"})


def a_retry_ends_where_it_says(case: Case) -> Found:
    """Not later, nor, if the errors stay, earlier; and a worker's death is no error of the tool's."""
    for row in case.store.rows.values():
        kind, how = KINDS[row.kind], stored_end(row)
        retries = row.events.get("retry", 0)
        if retries >= kind.attempts or (how in _LAST_STRAW and retries < kind.attempts - 1):
            yield row.label, f"it is {how} after {retries} retries, and {kind.attempts} attempts were allowed"
        deaths = row.events.get("death", 0) + row.events.get("overrun", 0)
        if how == "exhausted" and deaths != DEATHS:
            yield row.label, f"it was given up after {deaths} deaths, and {DEATHS} were allowed"
        done = case.done.get(row.id, ())
        tries = row.events.get("step_retry", 0)
        for name, values in {each.name: each.value for each in done if each.event == "value"}.items():
            failed = sum(each.event == "fail" and each.name == name for each in done)
            if values == FAILED and failed and tries < TRIES - 1:
                yield row.label, f"{name!r} failed for good after {tries} further tries, and {TRIES} were allowed"
        if tries >= TRIES:
            yield row.label, f"a step was tried {tries} times more, and {TRIES} were allowed in all"


def attempts_add_up(case: Case) -> Found:
    """What the timeline counts is what tools saw: failures that happened, and an attempt for each failure or death."""
    for row in case.store.rows.values():
        done = case.done.get(row.id, ())
        noted = Counter(each.event for each in done)["fail"]
        counted = row.events.get("retry", 0) + row.events.get("step_retry", 0)
        if counted > noted and "overrun" not in KINDS[row.kind].ends:
            yield row.label, f"its timeline has {counted} failures, and its tool failed {noted} times"
        if row.status not in TERMINAL or stored_end(row) != "completed":
            continue
        before = sum(row.events.get(kind, 0) for kind in ("retry", "death", "overrun"))
        for each in done:
            if each.event == "end" and each.run == token(row) and each.attempt != 1 + before:
                yield row.label, f"it was completed in attempt {each.attempt}, and its timeline has {before} before"
