"""How much a task may ask of the store, and a request of the server, so that a bug in one tool or client stays there.

A bound that nobody reaches in earnest is the cheapest guard there is; each error names what went past it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import ConfigurationError

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one task, and of one request.

    Args:
        step_name: characters in the name of a step or of external work.
        entries: entries in the journal of one task: steps, sleeps, external work, gathers.
        step_result: bytes that one step's result takes as JSON.
        result: bytes that the result of the whole task takes as JSON.
        idempotency_key: characters in an idempotency key.
        tasks_per_subscription: tasks that one `subscriptions/listen` may ask for.

    Raises:
        ConfigurationError: a bound is no whole number, or below 1.
    """

    step_name: int = 200
    entries: int = 10_000
    step_result: int = 1 << 20
    result: int = 16 << 20
    idempotency_key: int = 200
    tasks_per_subscription: int = 1_000

    def __post_init__(self) -> None:
        for bound in fields(self):
            value: object = getattr(self, bound.name)
            # bool is an int to Python, and NaN is below nothing.
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"The limit {bound.name} must be a whole number of at least 1")
