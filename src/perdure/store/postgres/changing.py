"""What changes tasks that are there: batches of verbs, each on a sheet and in one transaction.

Workers name tasks by their claims, clients and other systems by their ids. The two come in batches of their own, so
that each takes its locks with a single statement, in the order of the tasks' numbers: two orders would be a deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from perdure.domain.errors import TaskExpired, TaskNotFound, Unreadable
from perdure.domain.journal import Entry, admitted

from . import finding
from .access import Access
from .finding import Sought
from .jobs import Done
from .sheet import Held, Named, Sheet

__all__ = ["change_held", "change_named"]

_NOBODYS: Final = -1
"""No task has that number."""


async def change_held(access: Access, verbs: Sequence[Held]) -> list[Done]:
    """Verbs on tasks that are claimed."""
    sheet = Sheet(access)
    async with access.writing():
        await sheet.lock_held(verb.claim for verb in verbs)
        await sheet.load_for((verb.claim.seq, verb) for verb in verbs)
        done = [sheet.run(verb.claim.seq, verb.act) for verb in verbs]
        await sheet.flush()
    return done


async def change_named(access: Access, verbs: Sequence[Named]) -> list[Done]:
    """Verbs on tasks that are known by their ids."""
    sheet = Sheet(access)
    async with access.writing():
        works = await finding.external_work(access, {(verb.id, verb.bearer.place) for verb in verbs if verb.bearer})
        sought = {Sought(verb.owner, verb.id) for verb in verbs if _is_let_in(verb, works)}
        await sheet.lock_named(sought)
        # What is over by now can't change any more, and is read without a lock; with its questions, if it has any.
        for row in await finding.rows_of(access, [each for each in sought if each.id not in sheet.named]):
            sheet.take_up_over(row)
        await sheet.load_for((sheet.named[verb.id][0], verb) for verb in verbs if verb.id in sheet.named)
        done = [_run(sheet, verb, let_in=_is_let_in(verb, works)) for verb in verbs]
        await sheet.flush()
        return await _tell_expired(access, verbs, done)


def _is_let_in(verb: Named, works: Mapping[tuple[str, str], Entry | Unreadable]) -> bool:
    """Whether the caller comes as an owner, or with the token of the work.

    Looked at before the task is read and locked for them: how long that takes, and whom it waits for, would tell a
    stranger that there is one.
    """
    if verb.bearer is None:
        return True
    work = works.get((verb.id, verb.bearer.place))
    if isinstance(work, Unreadable):  # the verb comes to it again, and then says so
        return True
    try:
        admitted(work, verb.bearer.token)
    except TaskNotFound:
        return False
    return True


def _run(sheet: Sheet, verb: Named, *, let_in: bool) -> Done:
    seq, owner = sheet.named.get(verb.id, (_NOBODYS, None))
    mine = let_in and verb.owner in (None, owner)
    return sheet.run(seq if mine else _NOBODYS, verb.act)


async def _tell_expired(access: Access, verbs: Sequence[Named], done: Sequence[Done]) -> list[Done]:
    """What was purged a while ago is not just unknown to its owner."""
    sought = [
        Sought(verb.owner, verb.id) if verb.owner is not None and isinstance(each.error, TaskNotFound) else None
        for verb, each in zip(verbs, done, strict=True)
    ]
    buried = await finding.expired(access, [each for each in sought if each is not None])
    return [Done(error=TaskExpired()) if one in buried else each for one, each in zip(sought, done, strict=True)]
