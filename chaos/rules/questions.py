"""Questions and answers: each key is one question, and each answer that was acknowledged counts."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

from chaos.case import Case, Found, end
from chaos.evidence import Input
from chaos.history import Answer
from chaos.kinds import KINDS

__all__ = ["a_key_is_one_question", "an_answered_key_is_gone", "no_answer_is_lost"]

JSON = Any


def a_key_is_one_question(case: Case) -> Found:
    for record in case.records.values():
        known: dict[str, JSON] = {}
        for read in record.reads:
            for key, request in read.asked.items():
                if known.setdefault(key, request) != request:
                    yield record.label, f"{key!r} was asked as {known[key]} and as {request}"


def an_answered_key_is_gone(case: Case) -> Found:
    for record in case.records.values():
        answered: dict[str, float] = {}
        for answer in record.answers:
            answered[answer.key] = min(answer.received, answered.get(answer.key, inf))
        for read in record.reads:
            for key in read.asked:
                if answered.get(key, inf) < read.sent:
                    yield record.label, f"{key!r} was asked again after its answer was acknowledged"


def no_answer_is_lost(case: Case) -> Found:
    for task_id, key, gots in case.named("answer"):
        record = case.records.get(task_id)
        if record is None:
            if any(got.value is not None for got in gots):
                yield task_id, f"nobody has its handle, and {key!r} was answered"
            continue
        given = [answer for answer in record.answers if answer.key == key]
        values = {got.value for got in gots}
        if len(values) > 1:
            yield record.label, f"the answer to {key!r} changed between runs: {sorted(map(str, values))}"
        kept = case.store.inputs.get((task_id, key))
        for value in values:
            if kept != (Input("superseded") if value is None else Input("answered", value)):
                yield record.label, f"the tool got {value!r} for {key!r}, and the store holds {kept}"
            if value is not None:
                yield from ((record.label, what) for what in _misheard(key, value, given))
            elif not KINDS[record.kind].impatient:
                yield record.label, f"the tool went on without an answer to {key!r}"
    yield from _results(case)


def _misheard(key: str, value: str, given: list[Answer]) -> Iterator[str]:
    """What is wrong with a tool's having got `value`."""
    own = [answer for answer in given if answer.text == value]
    if not own:
        yield f"the tool got {value!r} for {key!r}, which nobody answered"
    for answer in given:
        if own and answer.text != value and answer.received < min(each.sent for each in own):
            yield f"the tool got {value!r} for {key!r}, but {answer.text!r} was acknowledged before that was sent"


def _results(case: Case) -> Found:
    """What a task came to speaks of the answers that its tool got, and of what its steps came to."""
    for record in case.records.values():
        if record.final is None or end(record.final.task) != "completed":
            continue
        result = record.final.task["result"]["structuredContent"]
        for event, member in (("answer", "answers"), ("value", "values")):
            got = {each.name: each.value for each in case.done.get(record.id, ()) if each.event == event}
            if result[member] != got:
                yield record.label, f"its result has {result[member]}, and its tool got {got}"
