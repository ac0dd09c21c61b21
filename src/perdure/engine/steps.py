"""Steps: what is done once.

A step that came to an end, good or bad, is on record before the work goes on, and is never run again. What a crash
costs is the step in flight: nobody knows how far it got, so it runs again, or, if it must run at most once, the work is
told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from perdure.domain.errors import (
    LeaseLost,
    NotStorable,
    StepFailed,
    StepInterrupted,
)
from perdure.domain.journal import Entry, EntryState, Verb
from perdure.domain.limits import within
from perdure.domain.model import JSON, JSONObject
from perdure.domain.retry import NEVER, Retry
from perdure.store.codec import decode, encode, mended

from .run import Run

__all__ = ["Step", "error_of", "failure", "fields", "step"]

logger = logging.getLogger(__name__)

_SHORT = 1000
"""Milliseconds up to which a step waits in memory before it is tried again; for longer, the run is parked."""
_NOTE = 500
_MESSAGE = 10_000
"""Characters that are kept of an error's text, in the timeline and in the journal."""


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
        NotStorable, LimitExceeded: what it returned or failed with can't be kept. Nothing is recorded, so it runs again
            next time.
        JournalMismatch, ConfigurationError: as `Run.come_by`; and LimitExceeded also as there.
        LeaseLost: this run no longer counts.
    """
    spot = await run.come_by(Verb.STEP, what.name)
    if spot.loose:
        return await _just_run(run, what)
    if what.at_most_once:
        run.once.add(spot.place)
    entry = spot.entry
    failures = 0
    if entry is not None:
        if entry.over:
            return _recorded(entry)
        if entry.state is EntryState.STARTED:
            raise StepInterrupted(what.name)
        failures = cast("int", fields(entry)["failures"])
        if not run.has_come(entry):
            run.wait_for(spot.place)
    while True:
        run.check_going()
        try:
            return await _try(run, spot.place, what)
        except _Raised as raised:
            failures += 1
            await _before_next(run, spot.place, what, failures, raised.error)


async def _just_run(run: Run, what: Step) -> JSON:
    """A step of the clean-up after a cancellation: once, and not on record."""
    try:
        value = await _called(run, what)
    except _Raised as raised:
        error = raised.error
        described = failure(type(error).__name__, str(error), what.describe(error))
        raise error_of(Entry("", Verb.STEP, what.name, EntryState.FAILED, described)) from error
    return decode(_encoded(run, what.name, what.keep(value)))


class _Raised(Exception):
    """What the step's own code raised, as opposed to what keeping its result did."""

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _try(run: Run, place: str, what: Step) -> JSON:
    if what.at_most_once:
        await run.record(Entry(place, Verb.STEP, what.name, EntryState.STARTED))
    value = await _called(run, what)
    text = _encoded(run, what.name, what.keep(value))
    await run.record(Entry(place, Verb.STEP, what.name, EntryState.DONE, decode(text)))
    return decode(text)


async def _called(run: Run, what: Step) -> Any:
    try:
        with run.inside(what.name):
            return await _bounded(what)
    except LeaseLost:
        raise
    except Exception as error:  # the boundary around the author's code
        raise _Raised(error) from error


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
    advice = "keep what is large elsewhere, and return where it is"
    within(f"The result of the step {name!r}", size, run.limits.step_result, "step_result", advice)
    run.make_room(size)
    return text


async def _before_next(run: Run, place: str, what: Step, failures: int, error: Exception) -> None:
    """Record that a try failed, and wait until the next one; or raise what it came to, if it was the last."""
    delay = what.retry.next_delay(error, failures, run.chance()) if what.retryable(error) else None
    described = failure(type(error).__name__, str(error), what.describe(error))
    if delay is None:
        run.make_room(len(encode(described).encode()))
        entry = await run.record(Entry(place, Verb.STEP, what.name, EntryState.FAILED, described))
        raise error_of(entry) from error
    note = f"{what.name}: try {failures} failed with {described['type']}: {described['message']}"
    value: JSON = {"failures": failures}
    await run.record(
        Entry(place, Verb.STEP, what.name, EntryState.RETRYING, value), wake_in_ms=delay, note=note[:_NOTE]
    )
    if delay > _SHORT:
        run.wait_for(place)
    await run.pause(delay / 1000)


def _recorded(entry: Entry) -> JSON:
    if entry.state is EntryState.FAILED:
        raise error_of(entry)
    return entry.value


def failure(type: str, message: str, detail: JSON = None) -> JSONObject:
    """What is recorded of a step or of external work that failed. Of the message, 10,000 characters are kept."""
    return {"type": type, "message": mended(message)[:_MESSAGE], "detail": detail}


def error_of(entry: Entry) -> StepFailed:
    """What a failed entry raises, in the run that it failed in and in every later one."""
    value = fields(entry)
    return StepFailed(
        entry.name, str(value["type"]), str(value["message"]), places=(entry.place,), detail=value.get("detail")
    )


def fields(entry: Entry) -> JSONObject:
    """The value of an entry that is an object."""
    return entry.value if isinstance(entry.value, dict) else {}
