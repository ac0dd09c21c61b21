"""How much a task may ask of the store, and a request of the server, so that a bug in one tool or client stays there.

A bound that nobody reaches in earnest is the cheapest guard there is; each error names what went past it. All of them,
and those of a whole process, stand in one table in `docs/limits.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from .errors import ConfigurationError, LimitExceeded

__all__ = ["MAX_DEPTH", "Limits", "cut", "within"]

MAX_DEPTH: Final = 100
"""Levels of nesting that a stored value may have.

Python's parser recurses: a value that was stored from a shallow stack might not be readable from a deeper one, and then
its task could never be read again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one task, and of one request.

    Args:
        arguments: bytes that the arguments of a call take as JSON, and what its `prepare` function returned.
        step_name: characters in the name of a step or of external work.
        entries: entries in the journal of one task: steps, sleeps, external work, gathers.
        step_result: bytes that one step's result takes as JSON.
        journal: bytes that the values of all entries of one task take as JSON.
        questions: questions that one task may ask in its whole life.
        question: bytes that one question takes as JSON.
        answer: bytes that the answer to one question takes as JSON.
        answer_values: values in the answers that one request brings, together: members and items, at all levels.
        message: characters that are kept of a status message; a longer one is cut.
        result: bytes that the result of the whole task takes as JSON.
        idempotency_key: characters in an idempotency key.
        depth: levels of nesting in the parameters of a request that is about tasks; 100 at most.
        values: values in the parameters of a request that is about tasks: members and items, at all levels.
        tasks_per_subscription: tasks that one `subscriptions/listen` may ask for.
        request_body: bytes of one request over HTTP to `perdure serve`, `perdure.serve` or a `tasks.server(…)`, and of
            one callback; a larger one is answered with 413.
        polls_per_second: how often the owner of a task may ask one process for it, in the long run; more often than
            that, it is refused. Ten seconds' worth of it may come at once.

    Raises:
        ConfigurationError: a bound is no whole number, or below 1, or `depth` is above 100.
    """

    arguments: int = 1 << 20
    step_name: int = 200
    entries: int = 10_000
    step_result: int = 1 << 20
    journal: int = 64 << 20
    questions: int = 1_000
    question: int = 1 << 20
    answer: int = 1 << 20
    answer_values: int = 5_000
    message: int = 10_000
    result: int = 16 << 20
    idempotency_key: int = 200
    depth: int = MAX_DEPTH
    values: int = 250_000
    tasks_per_subscription: int = 1_000
    request_body: int = 4 << 20
    polls_per_second: int = 50

    def __post_init__(self) -> None:
        for bound in fields(self):
            value: object = getattr(self, bound.name)
            # bool is an int to Python, and NaN is below nothing.
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"The limit {bound.name} must be a whole number of at least 1")
        if self.depth > MAX_DEPTH:
            raise ConfigurationError(f"The limit depth must be at most {MAX_DEPTH}: no deeper value can be stored")


def within(what: str, size: int, limit: int, advice: str = "") -> None:
    """That something that takes `size` bytes as JSON is within its limit.

    Raises:
        LimitExceeded: it is not; the message names both, and may give some `advice`.
    """
    if size > limit:
        more = f": {advice}" if advice else ""
        raise LimitExceeded(f"{what} takes {size} bytes as JSON, and {limit} is the limit{more}")


def cut(text: str, most: int) -> str:
    """`text`, or its beginning with an ellipsis, in `most` characters.

    A message that is too long is no reason to fail: people read its beginning.
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
