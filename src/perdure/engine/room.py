"""How much of what one task may keep is used up: entries of its journal, their bytes, and questions.

Counted from what the journal held when the run began, and from what the run has added since. Notes of a few bytes, such
as how often something was tried, are counted once they are there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from perdure.domain import verdicts
from perdure.domain.errors import LimitExceeded
from perdure.domain.journal import Journal
from perdure.domain.limits import Limits, short, within
from perdure.domain.model import Asked
from perdure.store.codec import encode, named

__all__ = ["Room"]

_BESIDES: Final = 1 << 21
"""Bytes that one entry may take besides a result: the text of an error and what clients are told of it, or a handle."""


class Room:
    """The room that one run has left."""

    def __init__(self, limits: Limits, journal: Journal) -> None:
        self._limits = limits
        self._journal = journal
        self._begun = len(journal.entries)
        self._bytes: int | None = None
        self._added = 0

    def for_entry(self) -> None:
        """Begin another entry.

        Those that were begun count, not those on record: of a thousand branches none may have come that far yet.

        Raises:
            LimitExceeded: there are as many as there may be.
        """
        most = self._limits.entries
        if self._begun >= most:
            raise LimitExceeded(verdicts.JOURNAL_FULL.format(most=most))
        self._begun += 1

    def for_value(self, size: int) -> None:
        """Keep another value of `size` bytes.

        Raises:
            LimitExceeded: together they would take too many.
        """
        self._added += size
        most = self._limits.journal
        if self._could_pass(most) and self._held() + self._added > most:
            self._added -= size
            raise LimitExceeded(
                f"The journal of a task takes at most {most} bytes as JSON, and {size} more are too many (journal): "
                "keep what is large elsewhere, and return where it is"
            )

    def for_questions(self, asked: Mapping[str, Asked], *, besides: Collection[str]) -> None:
        """Ask these questions, by key, `besides` those of other keys; among all may be some that were asked before.

        Raises:
            LimitExceeded: one or its key is too large, or the task would have asked too many in its life.
            NotStorable: one has no JSON form, or its key is no text that every store takes.
        """
        limits = self._limits
        if len({*self._journal.questions, *besides, *asked}) > limits.questions:
            raise LimitExceeded(f"A task may ask {limits.questions} questions at most (questions)")
        for key, new in asked.items():
            short("The key of a question", named("The key of a question", key), limits.question_key, "question_key")
            within(f"The question {key!r}", len(encode(new.request).encode()), limits.question, "question")

    def _could_pass(self, most: int) -> bool:
        """Whether it is worth while to measure what there was: few entries, each within its own limit, are not."""
        return len(self._journal.entries) * (self._limits.step_result + _BESIDES) + self._added > most

    def _held(self) -> int:
        if self._bytes is None:
            self._bytes = sum(len(encode(entry.value).encode()) for entry in self._journal.entries.values())
        return self._bytes
