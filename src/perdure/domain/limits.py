"""How much a task may ask of the store, and a request of the server, so that a bug in one tool or client stays there.

A bound that nobody reaches in earnest is the cheapest guard there is; each error names what went past it. All of them,
and those of a whole process, stand in one table in `docs/limits.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from .errors import ConfigurationError, LimitExceeded

__all__ = [
    "MAX_DEPTH",
    "MAX_IDEMPOTENCY_KEY",
    "MAX_PLACE",
    "MAX_PRINCIPAL",
    "MAX_QUESTION_KEY",
    "MAX_TENANT",
    "MAX_TOOL_NAME",
    "Limits",
    "cut",
    "short",
    "within",
]

MAX_DEPTH: Final = 100
"""Levels of nesting that a stored value may have.

Python's parser recurses: a value that was stored from a shallow stack might not be readable from a deeper one, and then
its task could never be read again."""

# What becomes a part of a key in a database is bounded on every store, or a task that runs on one machine would fail on
# many: a row of an index of PostgreSQL has at most 2,704 bytes, and a character has up to four. The tenant, the
# principal and the idempotency key share one such row, the tenant and the tool's name another.

MAX_QUESTION_KEY: Final = 500
"""Characters in the key of a question."""
MAX_PLACE: Final = 1_000
"""Characters in a place of the journal, all of them ASCII. It grows with each gather within a gather."""
MAX_IDEMPOTENCY_KEY: Final = 250
"""Characters in an idempotency key."""
MAX_TENANT: Final = 250
"""Bytes of a tenant."""
MAX_PRINCIPAL: Final = 1_250
"""Bytes of a principal: an issuer, a client and a subject, of which OpenID Connect allows 255 characters."""
MAX_TOOL_NAME: Final = 250
"""Characters in the name of a task tool."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one task, and of one request.

    Args:
        arguments: bytes that the arguments of a call take as JSON, and what its `prepare` function returned.
        step_name: characters in the name of a step or of external work.
        entries: entries in the journal of one task: steps, sleeps, and external work, which takes two or three.
        step_result: bytes that one step's result takes as JSON.
        journal: bytes that the values of all entries of one task take as JSON: results, and what went wrong.
        questions: questions that one task may ask in its whole life.
        question_key: characters in the key of a question; 500 at most.
        question: bytes that one question takes as JSON.
        answer: bytes that the answer to one question takes as JSON.
        answer_values: values in the answers that one request brings, together: members and items, at all levels.
        message: characters that are kept of a status message; a longer one is cut.
        result: bytes that the result of the whole task takes as JSON.
        idempotency_key: characters in an idempotency key; 250 at most.
        depth: levels of nesting in the parameters of a request that is about tasks; 100 at most.
        values: values in the parameters of a request that is about tasks: members and items, at all levels.
        tasks_per_subscription: tasks that one `subscriptions/listen` may ask for.
        request_body: bytes of one request over HTTP to `perdure serve`, `perdure.serve` or a `tasks.server(…)`, and of
            one callback; a larger one is answered with 413.
        polls_per_second: how often the owner of a task may ask one process for it, in the long run; more often than
            that, it is refused. Ten seconds' worth of it may come at once.

    Raises:
        ConfigurationError: a bound is no whole number, or below 1, or above what it may be at most.
    """

    arguments: int = 1 << 20
    step_name: int = 200
    entries: int = 10_000
    step_result: int = 1 << 20
    journal: int = 64 << 20
    questions: int = 1_000
    question_key: int = 200
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
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ConfigurationError(f"The limit {name} must be at most {most}: not every store can keep more")


_MOST: Final = {"depth": MAX_DEPTH, "question_key": MAX_QUESTION_KEY, "idempotency_key": MAX_IDEMPOTENCY_KEY}


def within(what: str, size: int, limit: int, name: str, advice: str = "") -> None:
    """That something that takes `size` bytes as JSON is within its limit, which is called `name`.

    Raises:
        LimitExceeded: it is not; the message has all of that, and may give some `advice`.
    """
    if size > limit:
        more = f": {advice}" if advice else ""
        raise LimitExceeded(f"{what} takes {size} bytes as JSON, and {limit} is the limit ({name}){more}")


def short(what: str, text: str, most: int, name: str) -> None:
    """That a text which is to be a name or a key has `most` characters at most, a limit which is called `name`.

    Raises:
        LimitExceeded: it has more; the message shows its beginning.
    """
    if len(text) > most:
        raise LimitExceeded(f"{what} {text[:40]!r}… has {len(text)} characters, and {most} is the limit ({name})")


def cut(text: str, most: int) -> str:
    """`text`, or its beginning with an ellipsis, in `most` characters.

    A message that is too long is no reason to fail: people read its beginning.
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"
