"""The sentences with which Perdure itself fails a task, as templates of `str.format`.

Who fails a task takes the words from here, and who shows tasks to operators knows by them what is Perdure's: what a
tool says is between it and its client, and may be anything. So nothing goes into a field but numbers, types, and names
of the tool's code, which its journal shows as well. A sentence with somebody's values in it belongs elsewhere.
"""

from __future__ import annotations

import re
from string import Formatter
from typing import Final

__all__ = [
    "DIED",
    "EXPIRED",
    "INTERNAL",
    "JOURNAL_FULL",
    "KEY_REUSED",
    "MISMATCH",
    "NOT_JSON",
    "SIDE_BY_SIDE",
    "VERB_IN_A_STEP",
    "is_ours",
]

INTERNAL: Final = "Internal error"
EXPIRED: Final = "The task expired: its ttl ran out before it finished"
DIED: Final = "The worker that ran the task died or went silent {deaths} times; giving up"
MISMATCH: Final = (
    "The tool's code does not agree with the task's journal: at place {place} the journal {recorded}, and the code "
    "{found}. A task must be finished by the code that began it: give a changed tool another version. If the tool was "
    "not changed, take what differs between runs (a clock, chance) from a step."
)
KEY_REUSED: Final = (
    "The input key {key!r} was already used by this task for a different question. Ask under another key, and keep a "
    "question's text free of what changes between runs."
)
JOURNAL_FULL: Final = "The journal of a task has at most {most} entries (entries), and this one is full"
NOT_JSON: Final = "The value can't be stored as JSON: {type}"
SIDE_BY_SIDE: Final = (
    "The tool came to {verb} in an asyncio task of its own. Which of several is first there is chance, so replay could "
    "take one's result for another's: put what runs side by side into task.gather"
)
VERB_IN_A_STEP: Final = "The step {name!r} uses {verb}: a step is replayed as a whole, so no durable verb can be in it"

_ALL: Final = (INTERNAL, EXPIRED, DIED, MISMATCH, KEY_REUSED, JOURNAL_FULL, NOT_JSON, SIDE_BY_SIDE, VERB_IN_A_STEP)
_SINGLE_WORDS: Final = frozenset({"deaths", "most", "type"})


def _shape(template: str) -> str:
    parts = Formatter().parse(template)
    return "".join(re.escape(words) + _field(name) for words, name, _, _ in parts)


def _field(name: str | None) -> str:
    if name is None:
        return ""
    return r"\w+" if name in _SINGLE_WORDS else ".+"


_OURS: Final = re.compile("|".join(map(_shape, _ALL)), re.DOTALL)


def is_ours(message: str) -> bool:
    """Whether a task that failed says one of these. A tool may use the same code, so the code does not tell."""
    return _OURS.fullmatch(message) is not None
