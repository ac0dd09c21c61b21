"""The rules of questions and answers, for one task's journal of inputs.

A journal maps each key that the task ever used to its `InputRequest`. Keys are never used again for another question,
the first answer wins, and whatever is not outstanding is ignored (contract 4). These functions decide; stores write
what they return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .errors import InputKeyReused
from .model import JSON, InputRequest, InputState, JSONObject

__all__ = ["Journal", "accept", "admit", "answers", "outstanding"]

Journal = Mapping[str, InputRequest]


def admit(journal: Journal, asked: Mapping[str, JSONObject], now: int) -> dict[str, InputRequest]:
    """The questions in `asked` that are new to the journal, as they enter it.

    Raises:
        InputKeyReused: a key stands in the journal with a different question. The comparison is by value: replay runs
            the same code again, so a question that differs is a different question.
    """
    for key, request in asked.items():
        if key in journal and journal[key].request != request:
            raise InputKeyReused(key)
    return {key: InputRequest(key, request, now) for key, request in asked.items() if key not in journal}


def accept(journal: Journal, responses: Mapping[str, JSON]) -> dict[str, InputRequest]:
    """The entries that `responses` answer: outstanding ones only; unknown, answered and superseded keys are ignored."""
    return {
        key: replace(journal[key], state=InputState.ANSWERED, response=response)
        for key, response in responses.items()
        if key in journal and journal[key].state is InputState.OUTSTANDING
    }


def outstanding(journal: Journal) -> tuple[InputRequest, ...]:
    """The open questions, in the order in which they entered the journal."""
    return tuple(entry for entry in journal.values() if entry.state is InputState.OUTSTANDING)


def answers(journal: Journal, asked: Mapping[str, JSONObject]) -> dict[str, JSON] | None:
    """The recorded answers to all of `asked`, or None while any is missing."""
    found = {key: journal[key] for key in asked if key in journal and journal[key].state is InputState.ANSWERED}
    return {key: found[key].response for key in asked} if len(found) == len(asked) else None
