"""Making tasks: a batch is one statement, which is its own transaction.

Whether an id or a key is taken is for the unique indexes to say, which know it also of a task that another replica is
making at this moment. What they have let pass is looked up afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.domain import lifecycle
from perdure.domain.errors import PerdureError, StoreUnavailable
from perdure.domain.model import NewTask, Task
from perdure.store import rows, verbs
from perdure.store.codec import plain
from perdure.store.records import Record
from perdure.store.sealing import Codec

from . import finding, sql
from .access import Access
from .finding import Sought
from .jobs import Done

__all__ = ["create", "row"]

_TRIES: Final = 3
"""How often a task is made that was taken at first and could not be found then: somebody purged it in between."""

Row = tuple[Any, ...]


def row(new: NewTask, codec: Codec) -> Row:
    """What `sql.TASK_CREATE` is given of a task.

    Raises:
        NotStorable: one of the texts, or the parameters.
    """
    operation = new.operation
    texts = (new.id, new.owner.tenant, new.owner.principal, operation.method, operation.name, operation.version)
    accepts = " ".join(sorted(operation.accepts))
    plain("".join((*texts, accepts, new.key or "", new.digest or "")))
    return (
        *texts[:5],
        codec.encode(operation.params, new.owner, new.id, "params"),
        operation.version,
        new.ttl_ms,
        new.keep_ms,
        new.poll_ms,
        accepts,
        new.key,
        rows.stored_digest(new, codec),
        operation.handler,
        new.max_attempts,
        new.timeout_ms,
    )


async def create(access: Access, given: Sequence[tuple[NewTask, Row]]) -> list[Done]:
    done: dict[int, Done] = {}
    for _ in range(_TRIES):
        left = {number: each for number, each in enumerate(given) if number not in done}
        if not left:
            break
        done |= await _create(access, left)
    return [done.get(number, Done(error=StoreUnavailable())) for number in range(len(given))]


async def _create(access: Access, given: dict[int, tuple[NewTask, Row]]) -> dict[int, Done]:
    """Make those that can be made, and find the others; without those that are neither."""
    # The same id twice in one batch is the same call twice: the second finds what the first has made.
    first: dict[str, tuple[int, NewTask, Row]] = {}
    for number, (new, row) in _in_order(given):
        first.setdefault(new.id, (number, new, row))
    async with access.reading():
        columns = zip(*(row for _, _, row in first.values()), strict=True)
        made = await access.connection.fetch(sql.TASK_CREATE, access.clock, *map(list, columns))
    done = {first[id_][0]: _made(first[id_][1], seq, now) for id_, seq, now in made}
    for number, (new, _) in given.items():
        if number not in done:
            async with access.reading():
                known = await _known(access, new)
            if known is not None:
                done[number] = known
    return done


def _in_order(given: dict[int, tuple[NewTask, Row]]) -> list[tuple[int, tuple[NewTask, Row]]]:
    """As the callers came; but those with keys by their keys, since each waits for whoever is using its key just now.

    Two batches that have the same keys in two orders would wait for each other.
    """
    keyed = [each for each in given.items() if each[1][0].key is not None]
    keyed.sort(key=lambda each: (each[1][0].owner.tenant, each[1][0].owner.principal, each[1][0].key))
    return [each for each in given.items() if each[1][0].key is None] + keyed


def _made(new: NewTask, seq: int, now: int) -> Done:
    task = Record(lifecycle.created(seq, new, now), None)
    verbs.begin(task)
    return Done(task.task, changes=task.changes)


async def _known(access: Access, new: NewTask) -> Done | None:
    """The task that stands there already: under the id in the first place, since that is this very call again."""
    try:
        if await finding.by_id(access, new.id):
            (found,) = await finding.find(access, [Sought(new.owner, new.id)])
            # Gone in between, or somebody else's: which of the two, the next look tells.
            return found if found.error is None or await finding.by_id(access, new.id) else None
        task: Task | None = None
        if new.key is not None:
            task = await finding.recall(access, new.owner, new.key, new.digest)
        return None if task is None else Done(task)
    except PerdureError as error:
        return Done(error=error)
