"""The verdict: every rule by its name, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .case import Case, Found
from .evidence import Evidence
from .rules import attempts, questions, servers, steps, tasks, timers, work

__all__ = ["RULES", "Violation", "judge"]


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule`: what is promised. `subject`: the task, or what else it is about. `what`: what was found instead."""

    rule: str
    subject: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.what}"


RULES: Final[dict[str, Callable[[Case], Found]]] = {
    "no accepted task is lost": tasks.no_task_is_lost,
    "no task is made up": tasks.nothing_is_made_up,
    "a key is one task": tasks.a_key_is_one_task,
    "tasks of lost handles settle": tasks.lost_ones_settle,
    "a task is completed once": tasks.one_completion,
    "a terminal status stays": tasks.a_terminal_status_stays,
    "time does not run backwards": tasks.time_does_not_run_backwards,
    "a task ends as its tool does": tasks.a_task_ends_as_its_tool_does,
    "a retry ends where it says": attempts.a_retry_ends_where_it_says,
    "attempts add up": attempts.attempts_add_up,
    "an input key is one question": questions.a_key_is_one_question,
    "an answered key is gone": questions.an_answered_key_is_gone,
    "no answer is lost": questions.no_answer_is_lost,
    "a handle stays": work.a_handle_stays,
    "no word of another system is lost": work.no_word_is_lost,
    "at most once is at most once": steps.at_most_once_is_at_most_once,
    "a step runs again only for a crash": steps.a_step_runs_again_only_for_a_crash,
    "a step has one result": steps.a_step_has_one_result,
    "a timer is not early": timers.a_timer_is_not_early,
    "a server keeps to the contract": servers.a_server_keeps_to_the_contract,
    "the store is sound": servers.the_store_is_sound,
    "no process ends by itself": servers.no_process_ends_by_itself,
    "logs are in order": servers.logs_are_in_order,
}


def judge(evidence: Evidence) -> list[Violation]:
    """Everything that breaks a rule, in the order of the rules."""
    case = Case(evidence)
    return [Violation(name, subject, what) for name, rule in RULES.items() for subject, what in rule(case)]
