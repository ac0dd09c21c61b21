"""What operators ask of a store, whoever owns the tasks: a part of the `Store` protocol (`base`).

Never for a client. The looks cost what they say and no more, since there may be ten million tasks: a list and a count
come in parts, each a short read of its own, so that no read is ever as long as the table. Between two parts tasks come
and go, as they do between two looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from perdure.domain.model import Owner
from perdure.domain.operating import Hastened, Listed, Listing, Tally, Which
from perdure.domain.timeline import Inspection, Load

__all__ = ["Operators"]


class Operators(Protocol):
    """What operators ask: how tasks stand and what there is to run, and a hand where one is needed."""

    async def inspect(self, task_id: str) -> Inspection:
        """Everything about one task, whoever owns it. Never for a client.

        Raises:
            TaskNotFound: there is none.
        """
        ...

    async def browse(self, which: Which, after: int | None, limit: int) -> Listing:
        """Look at up to `limit` tasks, the newest first: those of a smaller number (`seq`) than `after`.

        Tells those that are meant, which may be none though there are more to look at. Where only unfinished tasks are
        meant, no others are looked at. `limit` is at least 1.
        """
        ...

    async def find_by_prefix(self, prefix: str, most: int) -> tuple[Listed, ...]:
        """The tasks whose ids begin so, up to `most`, in the order of their ids."""
        ...

    async def tally(self, after: int | None, limit: int) -> Tally:
        """Count up to `limit` tasks, as `browse` looks at them, by handler and status."""
        ...

    async def hasten(self, task_id: str) -> Hastened:
        """Make a run due that waits for a time: for its next attempt, or to be read again.

        Sleeps that are not over yet, and steps that are to be tried again, have come to their time with it. What it
        waits for from others keeps its time (`operating.on_hasten`). An event of the timeline (HASTEN), if anything was
        done.

        Raises:
            TaskNotFound: there is none.
        """
        ...

    async def discard(self, task_ids: Collection[str], *, tombstone_ms: int) -> int:
        """Delete tasks that are over, whatever their ttl, and all that belongs to them; as `purge` does.

        Those that are unfinished or unknown are passed over. Returns how many were deleted.
        """
        ...

    async def loads(self) -> tuple[Load, ...]:
        """What there is to run, by handler, in the order of their names."""
        ...

    async def backlog(self, most: int, tenant: str | None = None) -> Mapping[str, int]:
        """How many runs could be claimed now, by tenant; or of one tenant only.

        Counts up to `most`, which bounds its cost. Tenants without any are left out.
        """
        ...

    async def unfinished(self, owner: Owner, most: int) -> int:
        """How many unfinished tasks an owner has, whatever they wait for; up to `most`, which bounds the cost."""
        ...
