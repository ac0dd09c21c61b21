"""What may be given to `Tasks` and on the command line, checked once, where it comes in."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Final, cast

from perdure.domain.errors import ConfigurationError
from perdure.domain.limits import Limits
from perdure.store.keys import KeyRing
from perdure.wire.identity import Identify, by_token, checked

__all__ = ["Queues", "bound", "count", "identify", "limits", "queues", "ring", "share"]

Queues = Mapping[str, int | None] | Collection[str]
"""Names of queues, or how many tasks of each one worker may run at once (None: as many as it runs in all)."""
_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%")


def count(value: object, what: str) -> int:
    """A whole number of at least 1.

    Raises:
        ConfigurationError: `value` is none.
    """
    # bool is an int to Python, but `concurrency=True` is a mistake.
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{what} is {value!r}: write a whole number, at least 1")
    return value


def bound(value: object, what: str) -> int | None:
    """As `count`, or None for no bound."""
    if value is None:
        return None
    try:
        return count(value, what)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}, or None for no bound") from None


def share(value: object, what: str, whole: int | None) -> int | None:
    """As `bound`, or a share of a whole as `"10%"`, which is no bound if the whole has none.

    So what is left for others grows and shrinks with what there is for all, and nobody has to think of both.
    """
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is not None:
        return None if whole is None else max(1, whole * int(found[1]) // 100)
    try:
        return bound(value, what)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}, or a share as '10%'") from None


def identify(own: object, tenant_claim: object) -> Identify:
    """Who says whose a request is: the server's own function, or the verified token.

    Raises:
        ConfigurationError: one of them can't do that; or both are meant. Tenants that nobody looks at would not be kept
            apart, and nothing would show it.
    """
    if own is None:
        return by_token(_claim(tenant_claim))
    if not callable(own):
        raise ConfigurationError(f"identify is {own!r}: write a function from the request to its Owner")
    if _is_async(own):
        raise ConfigurationError(
            "identify is an async function: write a plain one, and look up in the token verifier what has to be looked"
            " up"
        )
    if tenant_claim is not None:
        raise ConfigurationError(
            "tenant_claim is for the default identify, and there is another one: say the tenant in the Owner that it"
            " returns"
        )
    return checked(cast("Identify", own))


def _claim(name: object) -> str | None:
    if name is not None and (not isinstance(name, str) or not name.strip()):
        raise ConfigurationError(f"tenant_claim is {name!r}: write the name of a claim of the token, or leave it out")
    return name


def _is_async(function: object) -> bool:
    """Whether a call of it makes something that has to be awaited, as far as that can be told before."""
    called = getattr(type(function), "__call__", None)  # noqa: B004 - the method of an object that is no function
    return any(iscoroutinefunction(each) or isasyncgenfunction(each) for each in (function, called))


def queues(value: object) -> Mapping[str, int | None] | None:
    """The queues to serve, each with its bound; None: all of them.

    Raises:
        ConfigurationError: that is not what `value` says.
    """
    if value is None:
        return None
    # A name alone is a collection of its letters, and surely not meant as that.
    if isinstance(value, str) or not isinstance(value, Collection):
        raise ConfigurationError(f"queues is {value!r}: write a list of names, or a mapping of names to numbers")
    named = cast("Collection[object]", value)
    if not named:
        raise ConfigurationError("queues is empty: name a queue, or leave it out to serve all of them")
    for name in named:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"queues has {name!r}: a queue's name is a text that is not empty")
    if not isinstance(value, Mapping):
        return dict.fromkeys(cast("Collection[str]", named))
    bounds = cast("Mapping[str, object]", value)
    return {name: bound(most, f"queues[{name!r}]") for name, most in bounds.items()}


def limits(value: object) -> Limits:
    """The limits, or the usual ones for None.

    Raises:
        ConfigurationError: `value` is something else.
    """
    if not isinstance(value, Limits | None):
        raise ConfigurationError(f"limits is {value!r}: write Limits(entries=…)")
    return value or Limits()


def ring(value: object) -> KeyRing | None:
    """The keys that were given, or None.

    Raises:
        ConfigurationError: `value` is something else. It may be the keys themselves, so it is not shown.
    """
    if not isinstance(value, KeyRing | None):
        raise ConfigurationError(f"keys is a {type(value).__name__}: write KeyRing.parse(os.environ[…]), or KeyRing(…)")
    return value
