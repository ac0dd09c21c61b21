"""Steps, and work that another system owns: the verbs that do something, and do it once.

A step that came to an end, good or bad, is on record before the work goes on, and is never run again. What a crash
costs is the step in flight: nobody knows how far it got, so it runs again, or, if it must run at most once, the work is
told.

External work is begun by a step of its own and then waited for like an answer. Its entry stands in the journal before
it is begun, since the other system may be done before the call that started it has returned. A system that does not
report by itself is looked at now and then, by a timer and not by a loop in memory.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from perdure.domain.errors import (
    AlreadySettled,
    LeaseLost,
    LimitExceeded,
    NotStorable,
    StepFailed,
    StepInterrupted,
)
from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.model import JSON, JSONObject
from perdure.domain.retry import NEVER, Retry
from perdure.store.codec import decode, encode

from . import patience
from .run import Run

__all__ = ["External", "Poll", "Settlement", "Step", "Ticket", "external", "failure", "step"]

logger = logging.getLogger(__name__)

_SHORT = 1000
"""Milliseconds up to which a step waits in memory before it is tried again; for longer, the run is parked."""
_NOTE = 500
_MESSAGE = 10_000
"""Characters that are kept of an error's text, in the timeline and in the journal."""
_START = "start "
_POLL = "poll"
_GROWTH = 1.5
_LONGEST = 300_000
"""By how much each interval between looks at external work is longer than the one before, and where that ends."""
_TOLERATED = 10
"""Looks in a row that may fail before the work is held to have failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """How a step runs.

    `describe` turns what the call raised into what is recorded of it besides type and message, and `keep` what it
    returned into JSON. `timeout_ms` bounds each try, and `retry` says how many there are, as long as what was raised is
    `retryable`.
    """

    name: str
    call: Callable[[], Awaitable[Any]]
    describe: Callable[[Exception], JSON] = lambda error: None
    at_most_once: bool = False
    retry: Retry = NEVER
    timeout_ms: int | None = None
    keep: Callable[[Any], JSON] = lambda value: value
    retryable: Callable[[Exception], bool] = lambda error: True


async def step(run: Run, what: Step) -> JSON:
    """What the step came to, now or in an earlier run; as it comes back from the store, in both cases.

    Raises:
        StepFailed: it failed, now or then, and is not tried again.
        StepInterrupted: it may run at most once, and was begun in an earlier run.
        Parked: it is to be tried again later. Let it pass.
        NotStorable, LimitExceeded: what it returned can't be kept. Nothing is recorded, so it runs again next time.
        JournalMismatch: something else was done here before.
    """
    spot = await run.come_by(Verb.STEP, what.name)
    if what.at_most_once:
        run.once.add(spot.place)
    entry = spot.entry
    failures = 0
    if entry is not None:
        if entry.over:
            return _recorded(entry)
        if entry.state is EntryState.STARTED:
            raise StepInterrupted(what.name)
        failures = cast("int", _object(entry)["failures"])
        if not run.has_come(entry):
            run.wait_for(spot.place)
    while True:
        run.check_going()
        try:
            return await _try(run, spot.place, what)
        except _Failure as failure:
            failures += 1
            await _before_next(run, spot.place, what, failures, failure.error)


class _Failure(Exception):
    """What the step's own code raised, as opposed to what keeping its result did."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _try(run: Run, place: str, what: Step) -> JSON:
    if what.at_most_once:
        await run.record(Entry(place, Verb.STEP, what.name, EntryState.STARTED))
    try:
        with run.inside(what.name):
            value = await _bounded(what)
    except LeaseLost:
        raise
    except Exception as error:
        raise _Failure(error) from error
    text = _encoded(run, what.name, what.keep(value))
    await run.record(Entry(place, Verb.STEP, what.name, EntryState.DONE, decode(text)))
    return decode(text)


async def _bounded(what: Step) -> Any:
    if what.timeout_ms is None:
        return await what.call()
    bound = asyncio.timeout(what.timeout_ms / 1000)
    try:
        async with bound:
            return await what.call()
    except TimeoutError as error:
        if bound.expired():
            raise TimeoutError(f"The step {what.name!r} took longer than {what.timeout_ms / 1000:g} s") from error
        raise


def _encoded(run: Run, name: str, value: JSON) -> str:
    try:
        text = encode(value)
    except NotStorable as error:
        raise NotStorable(f"The result of the step {name!r} can't be stored as JSON") from error
    size = len(text.encode())
    if size > run.limits.step_result:
        raise LimitExceeded(
            f"The result of the step {name!r} takes {size} bytes as JSON, and {run.limits.step_result} is the limit: "
            "keep what is large elsewhere, and return where it is"
        )
    return text


async def _before_next(run: Run, place: str, what: Step, failures: int, error: Exception) -> None:
    """Record that a try failed, and wait until the next one; or raise what it came to, if it was the last."""
    chance = random.random()  # noqa: S311 - jitter, no secret
    delay = what.retry.next_delay(error, failures, chance) if what.retryable(error) else None
    described = _described(what, error)
    if delay is None:
        entry = await run.record(Entry(place, Verb.STEP, what.name, EntryState.FAILED, described))
        raise _failed(entry) from error
    note = f"{what.name}: try {failures} failed with {described['type']}: {described['message']}"
    value: JSON = {"failures": failures}
    await run.record(
        Entry(place, Verb.STEP, what.name, EntryState.RETRYING, value), wake_in_ms=delay, note=note[:_NOTE]
    )
    if delay > _SHORT:
        run.wait_for(place)
    await run.pause(delay / 1000)


def _described(what: Step, error: Exception) -> JSONObject:
    message = str(error).encode("utf-8", "replace").decode()
    return {"type": type(error).__name__, "message": message[:_MESSAGE], "detail": what.describe(error)}


def _recorded(entry: Entry) -> JSON:
    if entry.state is EntryState.FAILED:
        raise _failed(entry)
    return entry.value


def _failed(entry: Entry) -> StepFailed:
    value = _object(entry)
    return StepFailed(
        entry.name, str(value["type"]), str(value["message"]), places=(entry.place,), detail=value.get("detail")
    )


def _object(entry: Entry) -> JSONObject:
    return entry.value if isinstance(entry.value, dict) else {}


# -- work that another system owns -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ticket:
    """What the other system settles the work with: which work it is, and the secret that proves it."""

    task_id: str
    place: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Settlement:
    """How external work ended, as `Store.settle` takes it: DONE with its result, or FAILED with a `failure`."""

    state: EntryState
    value: JSON


def failure(type: str, message: str) -> JSON:
    """What is recorded of external work that failed."""
    return {"type": type, "message": message[:_MESSAGE], "detail": None}


@dataclass(frozen=True, slots=True)
class Poll:
    """How to find out whether work is over, of a system that does not report.

    `look` returns how it ended, or None while it goes on. `every_ms` is the first interval; they grow to five minutes.
    """

    look: Callable[[Ticket], Awaitable[Settlement | None]]
    every_ms: int


@dataclass(frozen=True, slots=True)
class External:
    """How external work is begun and given up.

    `start` hands it over, with the ticket; what it returns is not kept. `cancel` is told if somebody asks the task to
    stop meanwhile, or the time is up. `timeout_ms` is how long to wait, from the first time on.
    """

    name: str
    start: Callable[[Ticket], Awaitable[None]]
    cancel: Callable[[Ticket], Awaitable[None]] | None = None
    poll: Poll | None = None
    timeout_ms: int | None = None


async def external(run: Run, what: External) -> JSON:
    """What the other system reported.

    Raises:
        StepFailed: it reported a failure, or did not report in time (type "TimeoutError"); or `start` failed.
        Parked: it has not reported yet. Let it pass.
        JournalMismatch: something else was done here before.
    """
    spot = await run.come_by(Verb.EXTERNAL, what.name)
    entry = spot.entry or await _announced(run, spot.place, what)
    ticket = Ticket(run.claim.task.id, spot.place, str(_object(entry)["token"]))
    if not entry.over and what.cancel is not None:
        run.minding.add(spot.place)
    try:
        await _started(run, what, ticket, entry)
        entry = await _ended(run, what, ticket, entry)
    except asyncio.CancelledError:
        # The run began for this, if it began cancelled; else it will be begun again for it (`Run.minding`).
        if what.cancel is not None and run.cancelled_before:
            await what.cancel(ticket)
        raise
    run.minding.discard(spot.place)
    return _reported(entry)


async def _announced(run: Run, place: str, what: External) -> Entry:
    run.check_going()
    value: JSON = {"token": secrets.token_urlsafe(24)}
    entry = Entry(place, Verb.EXTERNAL, what.name, EntryState.STARTED, value)
    return await run.record(entry, wake_in_ms=what.timeout_ms)


async def _started(run: Run, what: External, ticket: Ticket, entry: Entry) -> None:
    """Begin the work by a step, unless it is over already: it was begun then, and the record of that was lost."""

    async def call() -> JSON:
        if not entry.over:
            await what.start(ticket)
        return None

    await step(run, Step(_START + what.name[: run.limits.step_name - len(_START)], call))


async def _ended(run: Run, what: External, ticket: Ticket, entry: Entry) -> Entry:
    """The entry once the work is over.

    Raises:
        Parked: it is not. Let it pass.
    """
    places = [entry.place]
    if what.poll is not None:
        timer = await run.come_by(Verb.SLEEP, _POLL)
        places.append(timer.place)
        if not entry.over:
            entry = await _looked_at(run, what, ticket, entry, timer.place, timer.entry)
    if entry.over:
        return entry
    if not run.has_come(entry):
        run.wait_for(*places)
    return await _given_up(run, what, ticket)


async def _looked_at(run: Run, what: External, ticket: Ticket, entry: Entry, place: str, timer: Entry | None) -> Entry:
    """The entry after a look at the work, if it is time for one; also for a last one before it is given up.

    How often it was looked at, and when the next time is, stand in the entry at `place`, written anew each time.
    """
    if what.poll is None or not (timer is None or run.has_come(timer) or run.has_come(entry)):
        return entry
    run.check_going()
    before = _object(timer) if timer is not None else {}
    looks, errors = cast("int", before.get("looks", -1)) + 1, cast("int", before.get("errors", 0))
    # It was begun a moment ago when there is no timer yet.
    found, errors = (None, 0) if timer is None else await _found(run, what.name, what.poll, ticket, errors)
    if found is not None:
        return await _settled(run, ticket, found)
    wait = min(what.poll.every_ms * _GROWTH ** min(looks, 100), max(what.poll.every_ms, _LONGEST))
    value: JSON = {"looks": looks, "errors": errors}
    await run.record(Entry(place, Verb.SLEEP, _POLL, EntryState.STARTED, value), wake_in_ms=int(wait))
    return entry


async def _found(run: Run, name: str, poll: Poll, ticket: Ticket, errors: int) -> tuple[Settlement | None, int]:
    """How the work ended, if it has; and how many looks in a row have failed by now."""
    try:
        with run.inside(name):
            return await poll.look(ticket), 0
    except LeaseLost:
        raise
    except Exception as error:
        logger.warning("a look at the external work %r failed", name, exc_info=True)
        text = str(error).encode("utf-8", "replace").decode()
        given_up = Settlement(EntryState.FAILED, failure(type(error).__name__, text))
        return (None if errors + 1 < _TOLERATED else given_up), errors + 1


async def _given_up(run: Run, what: External, ticket: Ticket) -> Entry:
    """Its time has run out."""
    if what.cancel is not None:
        await what.cancel(ticket)
    end = Settlement(EntryState.FAILED, failure("TimeoutError", f"{what.name!r} did not report in time"))
    return await _settled(run, ticket, end)


async def _settled(run: Run, ticket: Ticket, end: Settlement) -> Entry:
    """Said through the store, where a report may have been a moment earlier, and then counts."""
    with suppress(AlreadySettled):
        await patience.persist(
            lambda: run.store.settle(ticket.task_id, ticket.place, ticket.token, end.state, end.value)
        )
    entry = await run.reload(ticket.place)
    if entry is None:
        raise LeaseLost
    return entry


def _reported(entry: Entry) -> JSON:
    value = _object(entry).get("value")
    if entry.state is EntryState.FAILED:
        raise _failed(Entry(entry.place, entry.verb, entry.name, entry.state, value))
    return value
