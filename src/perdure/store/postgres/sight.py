"""What this replica remembers of the queue, so that a look need not walk over what is gone.

A run that was claimed leaves its entry in the index until a vacuum takes it away, and no vacuum may as long as anybody
holds an older snapshot: a backup, a report, a replica that reads. The entries of what was claimed lie before those of
what is ready, each tenant's in the order of time; a look that began at the beginning would walk over all of them each
time, and claims would become slower by the minute. So a look begins where the last claim left off, and for tenants that
it does not know it looks only into the gaps between those that it does.

That is what a quick look sees. What lies before (a run whose transaction took its time, timers that somebody else made
due) is seen by a full one: whenever a quick look has not found enough, and now and then; and all of it is forgotten
when the clock is set back. Where a full look is slow, it is had less often, so that it never takes more than a small
share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

__all__ = ["EVERYTHING", "Sight"]

EVERYTHING: Final = -(2**63)
"""An instant before all others."""
_SLACK: Final = 100
"""Milliseconds before the last one claimed: what is made at the same time does not become visible in that order."""
_KNOWN: Final = 100
"""Tenants that are remembered of each handler; each is a probe of the index."""
_NOW_AND_THEN: Final = 1.0
"""Seconds after which what lies before is worth a look, though there is enough to do."""
_SLOW: Final = 0.002
_SHARE: Final = 20
"""A full look that took longer than `_SLOW` seconds takes one in so many seconds at most."""


@dataclass(slots=True)
class Sight:
    """From where on the runs of each handler's tenants are worth a look."""

    clock: Callable[[], float] = monotonic
    timers: int = 0
    """From when on a timer may be due."""
    _since: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    _looked: float = 0.0
    _took: float = 0.0
    _now: int = 0

    def since(self, handler: str, tenant: str) -> int:
        """Where to begin with a tenant's runs."""
        return self._since.get(handler, {}).get(tenant, EVERYTHING)

    def taken(self, handler: str, tenant: str, due_at: int) -> None:
        """A run was claimed that had been due since `due_at`; those before it were as well."""
        known = self._since.setdefault(handler, {})
        known.pop(tenant, None)
        known[tenant] = due_at - _SLACK
        if len(known) > _KNOWN:
            del known[next(iter(known))]  # the one that was served longest ago

    def promoted(self, now: int) -> None:
        """No timer is due any more at `now`; one that is set from then on is due later."""
        self.timers = max(0, now - _SLACK)

    # -- what a look is about ------------------------------------------------------------------------------------------

    def known(self, wanted: Iterable[tuple[str, int]]) -> Iterator[tuple[Any, ...]]:
        """Handler, wanted, tenant, since: for each tenant that is known."""
        for handler, count in wanted:
            for tenant, since in self._since.get(handler, {}).items():
                yield handler, count, tenant, since

    def gaps(self, wanted: Iterable[tuple[str, int]], after: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
        """Handler, wanted, from, to: where tenants would be that are not known. `to` is None after the last of them.

        No more than the first few of a gap are looked for. So one begins at the tenant whose turn it is: next to the
        one that was served last (`after`, by handler).
        """
        for handler, count in wanted:
            known = self._since.get(handler, {})
            ends = {*known, after[handler]} if handler in after else set(known)
            start = ""
            for tenant in sorted(ends):
                upto = tenant if tenant in known else _next(tenant)
                if start != upto:
                    yield handler, count, start, upto
                start = _next(tenant)
            yield handler, count, start, None

    # -- full looks ----------------------------------------------------------------------------------------------------

    def set_back(self, now: int) -> bool:
        """Whether the store's clock has gone back since the last look: what is due from now on lies before all this."""
        before, self._now = self._now, now
        if now >= before - _SLACK:
            return False
        self._since.clear()
        self.timers = 0
        return True

    def worth_a_full_look(self, *, enough: bool) -> bool:
        """Whether to look at everything now, after a quick look that found `enough` or did not."""
        if not self.timers and not any(self._since.values()):
            return False  # the quick look was one
        pause = self._took * _SHARE if self._took > _SLOW else 0.0
        return self.clock() - self._looked >= max(pause, _NOW_AND_THEN if enough else 0.0)

    def looked(self, started: float) -> None:
        """A full look is over."""
        self._looked = self.clock()
        self._took = self._looked - started


def _next(tenant: str) -> str:
    """The text that comes next after it: there is no smaller character in a database."""
    return f"{tenant}\x01"
