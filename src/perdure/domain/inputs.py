"""The rules of questions and answers, for all that one task ever asked.

`Questions` maps each key that the task ever used to its `InputRequest`. Keys are never used again for another question,
the first answer wins, and whatever is not outstanding is ignored (contract 4). These functions decide; stores write
what they return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from .errors import InputKeyReused
from .model import JSON, Asked, InputRequest, InputState

__all__ = ["Questions", "accept", "admit", "awaited", "closed", "outstanding", "turned", "unanswered"]

Questions = Mapping[str, InputRequest]


def admit(questions: Questions, asked: Mapping[str, Asked], now: int) -> dict[str, InputRequest]:
    """What in `asked` is new, as it enters the record.

    Raises:
        InputKeyReused: a key stands there with a different question. The comparison is by value: replay runs the same
            code again, so a question that differs is a different question.
    """
    for key, new in asked.items():
        if key in questions and questions[key].request != new.request:
            raise InputKeyReused(key)
    return {key: _issued(key, new, now) for key, new in asked.items() if key not in questions}


def _issued(key: str, new: Asked, now: int) -> InputRequest:
    deadline = None if new.timeout_ms is None else now + new.timeout_ms
    return InputRequest(key, new.request, now, place=new.place, deadline=deadline)


def accept(questions: Questions, responses: Mapping[str, JSON]) -> dict[str, InputRequest]:
    """The questions that `responses` answer: outstanding ones only. Unknown, answered, superseded keys are ignored."""
    return {
        key: replace(questions[key], state=InputState.ANSWERED, response=response)
        for key, response in responses.items()
        if key in questions and questions[key].state is InputState.OUTSTANDING
    }


def unanswered(questions: Questions, now: int) -> dict[str, InputRequest]:
    """The open questions whose time has run out, as they are from then on: nobody waits for them any more."""
    return {
        question.key: replace(question, state=InputState.SUPERSEDED)
        for question in outstanding(questions)
        if question.deadline is not None and question.deadline <= now
    }


def turned(questions: Questions, keys: Collection[str]) -> dict[str, InputRequest]:
    """The open questions that a run which waits for those under `keys` begins or ceases to wait for.

    Code may leave a question behind: a branch beside it failed, and it went on otherwise. Such a question stays open,
    since the code may come by it again, and its answer is kept; but it must not hold up the answers to others.
    """
    return {
        question.key: replace(question, awaited=question.key in keys)
        for question in outstanding(questions)
        if question.awaited != (question.key in keys)
    }


def awaited(questions: Questions) -> tuple[InputRequest, ...]:
    """The open questions that the run waits for, in the order of asking."""
    return tuple(question for question in outstanding(questions) if question.awaited)


def outstanding(questions: Questions) -> tuple[InputRequest, ...]:
    """The open questions, in the order of asking."""
    return tuple(question for question in questions.values() if question.state is InputState.OUTSTANDING)


def closed(questions: Questions, keys: Iterable[str]) -> dict[str, InputRequest] | None:
    """The questions under `keys`, each answered or given up; None while any is open, or was never asked."""
    found: dict[str, InputRequest] = {}
    for key in keys:
        if key not in questions or questions[key].state is InputState.OUTSTANDING:
            return None
        found[key] = questions[key]
    return found
