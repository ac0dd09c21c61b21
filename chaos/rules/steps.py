"""Steps: what was done is not done again."""

from __future__ import annotations

from collections import Counter

from chaos.case import Case, Found, runs

__all__ = ["a_step_has_one_result", "a_step_runs_again_only_for_a_crash", "at_most_once_is_at_most_once"]


def at_most_once_is_at_most_once(case: Case) -> Found:
    for task_id, name, effects in case.named("step"):
        if len(effects) > 1 and any(effect.once for effect in effects):
            yield task_id, f"{name!r} is marked at most once and ran {len(effects)} times: {runs(effects)}"


def a_step_runs_again_only_for_a_crash(case: Case) -> Found:
    """A step that some run got past is recorded, so only ghosts may still run it: runs that a later attempt displaced.

    And no run runs a step twice, unless it failed there and is tried again. So each time that a step runs again without
    a failure, one run ended inside it.
    """
    began = {(each.task, each.run): position for position, each in enumerate(case.effects) if each.event == "start"}
    position_of = {id(each): position for position, each in enumerate(case.effects)}
    for task_id, name, effects in case.named("step", "value", "fail"):
        ran = [each for each in effects if each.event == "step"]
        failed = Counter(each.run for each in effects if each.event == "fail")
        if any(times > 1 + failed[run] for run, times in Counter(each.run for each in ran).items()):
            yield task_id, f"one run ran {name!r} twice: {runs(ran)}"
        passed = [each for each in effects if each.event == "value"]
        for again in ran:
            for past in passed:
                begun_later = began[task_id, again.run] > position_of[id(past)]
                if begun_later and again.attempt >= past.attempt:
                    yield task_id, f"{name!r} ran in {again.run} after it was recorded for {past.run}"


def a_step_has_one_result(case: Case) -> Found:
    for task_id, name, effects in case.named("value"):
        values = {str(effect.value) for effect in effects}
        if len(values) > 1:
            yield task_id, f"{name!r} came to {sorted(values)}"
