"""Work that another system owns: begun once, then waited for like an answer.

It is begun by a step of its own. Its entry stands in the journal before that, since the other system may be done before
the call that started it has returned. A system that does not report by itself is looked at now and then, by a timer and
not by a loop in memory. How the work ended is said through the store by whoever has its handle, this run included: the
first word counts, whoever's it is.

Who reports keeps to `Limits.step_result` (`tools.external`) and can't know what else the journal holds. What was
reported counts in each run that comes after it, and in a journal that is full nothing more is begun.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from perdure.domain import handles, ids
from perdure.domain.errors import AlreadySettled, LeaseLost, LimitExceeded
from perdure.domain.handles import Handle
from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.model import JSON
from perdure.store.codec import encode

from . import patience
from .run import Run
from .steps import Step, error_of, failure, fields, step

__all__ = ["External", "Poll", "Settlement", "external"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_START: Final = "start "
_POLL: Final = "poll"
_GROWTH: Final = 1.5
_LONGEST: Final = 300_000
"""By how much each interval between looks is longer than the one before, and where that ends, in milliseconds."""
_CANCEL_MS: Final = 10_000
_TOLERATED: Final = 10
"""Looks in a row that may fail before the work is held to have failed."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """How external work ended, as `Store.settle` takes it: DONE with its result, or FAILED with a `failure`."""

    state: EntryState
    value: JSON


@dataclass(frozen=True, slots=True)
class Poll:
    """How to find out whether work is over, of a system that does not report.

    `look` returns how it ended, or None while it goes on. `every_ms` is the first interval; they grow to five minutes.
    """

    look: Callable[[Handle], Awaitable[Settlement | None]]
    every_ms: int


@dataclass(frozen=True, slots=True)
class External:
    """How external work is begun and given up.

    `start` hands it over, with the handle that settles it; what it returns is not kept. `cancel` is told if somebody
    asks the task to stop meanwhile, or the time is up; it may take `cancel_ms`. `timeout_ms` is how long to wait, from
    the first time on, and what bounds `start` and each look.
    """

    name: str
    start: Callable[[Handle], Awaitable[None]]
    cancel: Callable[[Handle], Awaitable[None]] | None = None
    poll: Poll | None = None
    timeout_ms: int | None = None
    cancel_ms: int = _CANCEL_MS


class _OutOfTime(Exception):
    """The author's code did not return before the work's time was up."""


async def external(run: Run, what: External) -> JSON:
    """What the other system reported.

    Raises:
        StepFailed: it reported a failure, or did not report in time (type "TimeoutError"); or `start` failed.
        Parked: it has not reported yet. Let it pass.
        JournalMismatch, LimitExceeded, ConfigurationError: as `Run.come_by`.
        LeaseLost: this run no longer counts.
    """
    spot = await run.come_by(Verb.EXTERNAL, what.name)
    entry = spot.entry or await _announced(run, spot.place, what)
    handle = Handle(run.claim.task.id, spot.place, str(fields(entry)["token"]))
    if not entry.over and what.cancel is not None:
        run.minding.add(spot.place)
    try:
        await _started(run, what, handle, entry)
        entry = await _ended(run, what, handle, entry)
    except asyncio.CancelledError:
        # The run began for this, if it began cancelled; else it will be begun again for it (`Run.minding`).
        if run.cancelled_before:
            await _told(what, handle)
        raise
    run.minding.discard(spot.place)
    return _reported(entry)


async def _announced(run: Run, place: str, what: External) -> Entry:
    run.check_going()
    value: JSON = {"token": handles.mint_token(secrets.token_bytes), "tell": what.cancel is not None}
    run.make_room(_size(value))
    entry = Entry(place, Verb.EXTERNAL, what.name, EntryState.STARTED, value)
    return await run.record(entry, wake_in_ms=what.timeout_ms)


async def _started(run: Run, what: External, handle: Handle, entry: Entry) -> None:
    """Begin the work by a step, unless it is over already: it was begun then, and the record of that was lost."""

    async def call() -> JSON:
        if entry.over:
            return None
        try:
            await _in_time(run, what, entry, what.start(handle))
        except _OutOfTime:
            await _told(what, handle)  # nobody knows whether it was begun
            raise TimeoutError(f"{what.name!r} was not begun in time") from None
        return None

    await step(run, Step(_START + what.name[: run.limits.step_name - len(_START)], call))


async def _ended(run: Run, what: External, handle: Handle, entry: Entry) -> Entry:
    """The entry once the work is over.

    Raises:
        Parked: it is not. Let it pass.
    """
    places = [entry.place]
    if what.poll is not None:
        timer = await run.come_by(Verb.SLEEP, _POLL)
        places.append(timer.place)
        if not entry.over:
            try:
                entry = await _looked_at(run, what, handle, entry, timer.place, timer.entry)
            except _OutOfTime:
                return await _given_up(run, what, handle)
    if entry.over:
        return entry
    if not run.has_come(entry):
        run.wait_for(*places)
    return await _given_up(run, what, handle)


async def _looked_at(run: Run, what: External, handle: Handle, entry: Entry, place: str, timer: Entry | None) -> Entry:
    """The entry after a look at the work, if it is time for one; also for a last one before it is given up.

    How often it was looked at, and when the next time is, stand in the entry at `place`, written anew each time.
    """
    if what.poll is None or not (timer is None or run.has_come(timer) or run.has_come(entry)):
        return entry
    run.check_going()
    before = fields(timer) if timer is not None else {}
    looks, errors = cast("int", before.get("looks", -1)) + 1, cast("int", before.get("errors", 0))
    # It was begun a moment ago when there is no timer yet.
    found, errors = (None, 0) if timer is None else await _found(run, what, what.poll, handle, entry, errors)
    if found is not None:
        return await _settled(run, handle, found)
    wait = min(what.poll.every_ms * _GROWTH ** min(looks, 100), max(what.poll.every_ms, _LONGEST))
    value: JSON = {"looks": looks, "errors": errors}
    await run.record(Entry(place, Verb.SLEEP, _POLL, EntryState.STARTED, value), wake_in_ms=int(wait))
    return entry


async def _found(
    run: Run, what: External, poll: Poll, handle: Handle, entry: Entry, errors: int
) -> tuple[Settlement | None, int]:
    """How the work ended, if it has; and how many looks in a row have failed by now."""
    try:
        with run.inside(what.name):
            return await _in_time(run, what, entry, poll.look(handle)), 0
    except (LeaseLost, _OutOfTime):
        raise
    except Exception as error:  # the boundary around the author's code
        known_as = ids.abbreviated(run.claim.task.id)
        logger.warning("a look at the external work %r of task %s failed", what.name, known_as, exc_info=True)
        given_up = Settlement(EntryState.FAILED, failure(type(error).__name__, str(error)))
        return (None if errors + 1 < _TOLERATED else given_up), errors + 1


async def _given_up(run: Run, what: External, handle: Handle) -> Entry:
    """Its time has run out."""
    await _told(what, handle)
    end = Settlement(EntryState.FAILED, failure("TimeoutError", f"{what.name!r} did not report in time"))
    return await _settled(run, handle, end)


async def _told(what: External, handle: Handle) -> None:
    """Tell the other system that nobody wants the work any more, if there is a way to."""
    if what.cancel is None:
        return
    bound = asyncio.timeout(what.cancel_ms / 1000)
    try:
        async with bound:
            await what.cancel(handle)
    except TimeoutError:
        if not bound.expired():
            raise
        logger.warning("the external work %r could not be told in time that nobody wants it any more", what.name)


async def _in_time(run: Run, what: External, entry: Entry, call: Awaitable[T]) -> T:
    """What the author's code returns, in the time that the work has left; for a last look, as long as `cancel` has.

    Raises:
        _OutOfTime: it does not return.
    """
    if entry.wake_at is None:
        return await call
    left = what.cancel_ms if run.has_come(entry) else entry.wake_at - run.claim.at
    bound = asyncio.timeout(left / 1000)
    try:
        async with bound:
            return await call
    except TimeoutError:
        if bound.expired():
            raise _OutOfTime from None
        raise


async def _settled(run: Run, handle: Handle, end: Settlement) -> Entry:
    """Said through the store, where a report may have been a moment earlier, and then counts."""
    end = _fitting(run, end)
    with suppress(AlreadySettled):
        await patience.persist(
            lambda: run.store.settle(handle.task_id, handle.place, handle.token, end.state, end.value)
        )
    entry = await run.reload(handle.place)
    if entry is None:
        raise LeaseLost
    return entry


def _fitting(run: Run, end: Settlement) -> Settlement:
    """An end that the journal has room for. A result that is too much is a failure: the next look would find the same.

    What is on record must not depend on when it is read, so that is decided here and not where the result is used.
    """
    try:
        run.make_room(_size(end.value))
    except LimitExceeded as error:
        return Settlement(EntryState.FAILED, failure(type(error).__name__, str(error)))
    return end


def _size(value: JSON) -> int:
    return len(encode(value).encode())


def _reported(entry: Entry) -> JSON:
    value = fields(entry).get("value")
    if entry.state is EntryState.FAILED:
        raise error_of(Entry(entry.place, entry.verb, entry.name, entry.state, value))
    return value
