"""Timers: they may be late, as everything may be while workers die, and are never early."""

from __future__ import annotations

from typing import Final

from chaos.case import Case, Found, end
from chaos.kinds import BRIEF

__all__ = ["a_timer_is_not_early"]

_SHORT: Final = 0.02
"""Seconds: stores count in whole milliseconds."""


def a_timer_is_not_early(case: Case) -> Found:
    """Be it what a tool sleeps for, what it waits for an answer, or what a task lives for.

    A timer is set once, by the first run that gets there, or by a later one if that died before it was on record. Where
    the store goes by clocks that are set, nothing can be said.
    """
    if not case.true_time:
        return
    for task_id, name, effects in case.named("timer", "rang"):
        began = [each for each in effects if each.event == "timer"]
        for rang in effects:
            if rang.event == "rang" and rang.at < began[0].at + began[0].value - _SHORT:
                yield task_id, f"{name!r} was to last {began[0].value} s, and lasted {rang.at - began[0].at:.3f} s"
    for record in case.records.values():
        final = record.final
        if final is not None and end(final.task) == "expired":
            lived = final.received - min(read.sent for read in record.reads)
            if lived < BRIEF - _SHORT:
                yield record.label, f"it was to live for {BRIEF} s, and expired after {lived:.3f} s"
