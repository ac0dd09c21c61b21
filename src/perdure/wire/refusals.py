"""A line in the log for those who were refused because there is too much of something.

Clients are told when to come back; whoever runs the server has to hear of it too, or nobody moves a bound. What is
refused may be refused a thousand times a second, so of each kind there is one line a minute, with how many there were.

It says whose request it was, and whose most of those were that have no line, since one that is noisy keeps the others
from theirs. The tenant is written as it is: it is an organization, and whoever runs the server has to call it. A
principal may be a person, so what is written is a digest of it, the same in every line: enough to see that it is one,
and to find it among those that are in the store.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Final

from perdure.domain.limits import cut
from perdure.domain.model import Owner

__all__ = ["Refusals", "Seldom", "named"]

logger = logging.getLogger(__name__)

_EVERY: Final = 60.0
"""Seconds from one line of a kind to the next."""
_KINDS: Final = 100
"""Kinds that are told apart; all others are one."""
_OWNERS: Final = 1_000
"""Owners of one kind that are counted between two lines."""
_TENANT: Final = 80
"""Characters of a tenant in a line."""


class Seldom:
    """Says when a line of a kind is due: once a minute."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._said: dict[str, float] = {}
        self._unsaid: dict[str, Counter[str]] = {}

    def due(self, kind: str, who: str = "") -> str | None:
        """One more of `kind`, by `who`: the end of its line, with how many have had none. None: nor has this one."""
        if kind not in self._said and len(self._said) >= _KINDS:
            kind = "others"
        now, unsaid = self._clock(), self._unsaid.setdefault(kind, Counter())
        if now - self._said.get(kind, -_EVERY) < _EVERY:
            unsaid[who if who in unsaid or len(unsaid) < _OWNERS else ""] += 1
            return None
        self._said[kind] = now
        del self._unsaid[kind]
        return _more(unsaid)


def _more(unsaid: Counter[str]) -> str:
    if not unsaid:
        return ""
    (busiest, times), all_of_them = unsaid.most_common(1)[0], unsaid.total()
    whose = f", {times} of them of {busiest}" if busiest else ""
    return f" (and {all_of_them} since the last such line{whose})"


class Refusals:
    """Counts them by what clients are told, of which there are a few."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._seldom = Seldom(clock)

    def note(self, why: str, owner: Owner | None = None) -> None:
        """One more was refused: a request of `owner`."""
        who = "" if owner is None else named(owner)
        if (more := self._seldom.due(why, who)) is not None:
            logger.warning("a request%s was refused: %s%s", f" of {who}" if who else "", why, more)


def named(owner: Owner) -> str:
    """An owner as a log may show it: the tenant, if it has a name, and eight digits of a digest of the principal."""
    digest = hashlib.sha256(owner.principal.encode()).hexdigest()[:8]
    return f"the owner {digest}" + (f" in the tenant {cut(owner.tenant, _TENANT)!r}" if owner.tenant else "")
