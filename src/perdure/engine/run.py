"""One run of one task: the verbs that the work may use, over the journal and under the fence.

Waiting costs nothing. A verb that has to wait (for an answer, a time, another system) notes what for and raises
`Parked`, which unwinds the work; the worker then stores what it waits for and forgets the task. Once there is a reason
to go on, some worker runs the work again from its start, and each verb that has been gone through before returns what
the journal says. So code between the verbs runs again with each wait, and must be safe to.

Each verb has a place in the journal (`domain.journal`), by the order in which the work comes to it. Branches of a
`gather` number their verbs apart, each along a line of its own; which line a verb belongs to is known by a context
variable, which also reaches threads that are started for the work.

Code that is unwound may still use verbs, in a `finally` or an `except`, and must not disturb what the next run finds.
So a line that has parked stays parked; a run that was told to make way does nothing more; and once a cancellation was
delivered, steps just run, since nothing will be replayed.

A store that is unavailable for a while is no concern of the work's: the verbs wait for it.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from typing import Any, NoReturn, TypeVar

from perdure.domain import inputs
from perdure.domain.errors import (
    InputKeyReused,
    JournalMismatch,
    LimitExceeded,
    PerdureError,
    Unreadable,
)
from perdure.domain.journal import Entry, EntryState, Journal, Replay, Scope, Verb, Waits
from perdure.domain.limits import MAX_PLACE, Limits, cut, short
from perdure.domain.model import Asked, Claim, InputRequest
from perdure.store.base import Store

from . import branches, lines, patience
from .lines import WAITING, Line, Parked, Spot
from .room import Room
from .waiting import Waiting

__all__ = ["Parked", "Run", "Stop"]

T = TypeVar("T")


class Stop(Enum):
    """Why a run is to stop."""

    CANCEL = "somebody asked the task to stop"
    TIMEOUT = "the run was not over at its deadline"
    SHUTDOWN = "the worker is shutting down; another one will run the task"
    LOST = "the lease is lost, or the task is over: nothing that this run does counts any more"


class Run:
    """What the work sees of its task. Used from the event loop only.

    `pause` waits for some seconds where a wait is too short to park for. `chance` draws a number in [0, 1), for the
    jitter of a retry.
    """

    def __init__(
        self,
        store: Store,
        claim: Claim,
        limits: Limits | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.store = store
        self.claim = claim
        self.limits = limits or Limits()
        self.pause = pause
        self.chance = chance
        self.bug: PerdureError | None = None
        """What the work did wrong and can't be mended by going on. Noted, since the work may swallow what it raises."""
        self.stop: Stop | None = None
        """Set once somebody wants the run to stop: the reason that counts by now, which is `Execution`'s to say."""
        self.cancelled = claim.task.cancel_requested
        """Whether somebody asked the task to stop. How the work then ends decides how the task does."""
        self.shielded = 0
        """How many blocks hold a cancellation back just now."""
        self.on_unshielded: Callable[[], None] = _nothing
        """What the worker wants done once none does."""
        self.minding: set[str] = set()
        """The places of external work that is under way and is to be told if somebody asks the task to stop."""
        self.once: set[str] = set()
        """The places of the steps that may run at most once, as far as the work has come."""
        self.delivered = False
        """Whether the work was stopped for the reason that `stop` gives: as a coroutine, or else by its verbs.

        Not as a thread that is to stop because somebody cancels the task: it goes on as before until it looks.
        """
        self.refused = False
        """Whether a verb has ended the work because the run makes way: what it returns then is half of a result."""
        self._began_cancelled = claim.task.cancel_requested
        self._root = Line(Scope())
        self._meanwhile: list[tuple[str, BaseException]] = []
        """Where the work has come to while it was handling an error, and which."""
        self._replay: Replay | None = None
        self._journal = Journal()
        self._room = Room(self.limits, self._journal)
        self._loading = asyncio.Lock()
        self._waiting = Waiting()

    # -- what the worker asks ------------------------------------------------------------------------------------------

    def end(self, why: Stop) -> None:
        """Note that the run is to end, in place of the reason before. A task that was cancelled stays so."""
        self.stop = why
        self.cancelled = self.cancelled or why is Stop.CANCEL

    @property
    def stopping(self) -> bool:
        """Whether this run is to end, for whatever reason."""
        return self.stop is not None

    @property
    def parked(self) -> bool:
        """Whether the work came to something that it has to wait for."""
        return bool(self._waiting)

    @property
    def waits(self) -> Waits:
        """What it waits for."""
        return self._waiting.all(minds_cancel=bool(self.minding))

    @property
    def cancelled_before(self) -> bool:
        """Whether the run began only so that the work hears of its cancellation: the first new thing raises it."""
        return self._began_cancelled

    def run_by(self, task: asyncio.Task[Any] | None) -> None:
        """Say which task runs the work, so that verbs in others that it begins are noticed. None: a thread does."""
        self._root.task = task

    def come_to_since(self, errors: Collection[BaseException]) -> tuple[str, ...]:
        """Where the work has come to while it was handling one of `errors`: clean-up of an attempt that failed."""
        return tuple(place for place, error in self._meanwhile if error in errors)

    # -- what the work asks --------------------------------------------------------------------------------------------

    async def report(self, message: str) -> None:
        """Show `message` as the task's status message. Of a long one, the beginning is kept (`Limits.message`).

        Raises:
            LeaseLost: this run no longer counts.
            NotStorable: the message is no valid Unicode.
            asyncio.CancelledError: the run makes way. A step that is under way is to come to its end, and may say so.
        """
        if lines.step.get() is None:
            self._check_way()
        kept = cut(message, self.limits.message)
        await patience.persist(lambda: self.store.report(self.claim, kept))

    async def ask(self, asked: Mapping[str, Asked]) -> dict[str, InputRequest]:
        """The questions in `asked` (by key), each answered or given up; where they are asked is filled in here.

        Raises:
            Parked: some are open. Let it pass.
            InputKeyReused: a key stands for another question already.
            LimitExceeded: a question or its key is too large, or the task has asked too many.
            NotStorable: a question has no JSON form, or a key is no text that every store takes.
            JournalMismatch: something else was done here before.
            ConfigurationError: this is inside a step.
            asyncio.CancelledError: the run is to end, so it asks nothing more.
        """
        replay = await self._load()
        line = self._line_for(Verb.ASK)
        place = self._next_place(line)
        self._found(lambda: replay.find_ask(place, asked))
        self._found(lambda: inputs.admit(self._journal.questions, asked, now=0))
        closed = inputs.closed(self._journal.questions, asked)
        if closed is None:
            self.check_going()
            self._note_questions(asked, place)
            line.park()
        return closed

    def _note_questions(self, asked: Mapping[str, Asked], place: str) -> None:
        self._room.for_questions(asked, besides=self._waiting.keys)
        for key, new in asked.items():
            self._found(partial(self._waiting.for_answer, key, Asked(new.request, place, new.timeout_ms)))

    async def sleep(self, span_ms: int) -> None:
        """Wait for `span_ms` from the first time that the work comes here, whatever crashes meanwhile.

        Raises:
            Parked: the time has not come. Let it pass.
            JournalMismatch, LimitExceeded, ConfigurationError: as `come_by`.
            LeaseLost: this run no longer counts.
        """
        spot = await self.come_by(Verb.SLEEP)
        if spot.loose:
            await self.pause(span_ms / 1000)
        elif spot.entry is None:
            self.check_going()
            await self._begin_sleep(Entry(spot.place, Verb.SLEEP, "", EntryState.STARTED), span_ms)
            self.wait_for(spot.place)
        elif not self.has_come(spot.entry):
            self.wait_for(spot.place)

    async def _begin_sleep(self, entry: Entry, span_ms: int) -> None:
        """By the park, which follows at once; but beside other branches it may be long in coming."""
        if lines.current.get() is None:
            self._waiting.begin(entry, span_ms)
        else:
            await self.record(entry, wake_in_ms=span_ms)

    async def gather(self, work: Sequence[Awaitable[T]]) -> list[T]:
        """What the branches in `work` return, in their order. They run side by side, each with places of its own.

        All of them go on until they end, fail or park. An error comes before a wait, the first branch's before the
        others'; steps that failed in several are all tried again if the task is.

        Raises:
            Parked: some have to wait, and none failed. Let it pass.
            JournalMismatch, LimitExceeded, ConfigurationError: as `come_by`.
        """
        try:
            spot = await self.come_by(Verb.GATHER)
            return await self._side_by_side(spot.place, work)
        finally:
            branches.discard(work)

    async def _side_by_side(self, place: str, work: Sequence[Awaitable[T]]) -> list[T]:
        around = self._here
        beside = [Line(Scope.branch(place, number)) for number in range(len(work))]
        begun = zip(work, beside, strict=True)
        tasks = [branches.begin(branch, partial(lines.current.set, line)) for branch, line in begun]
        for line, task in zip(beside, tasks, strict=True):
            line.task = task if around.task is not None else None
        try:
            await branches.end_of_all(tasks)
            return branches.joined(tasks, last=Parked)
        except Parked:
            around.park()
        except BaseException:
            around.cancelled = around.cancelled or any(line.cancelled for line in beside)
            self._waiting.forget_inside(place)
            raise

    @contextmanager
    def shield(self) -> Generator[None]:
        """Hold a cancellation back until the block ends."""
        self.shielded += 1
        try:
            yield
        finally:
            self.shielded -= 1
            if not self.shielded:
                self.on_unshielded()

    async def conclude(self) -> None:
        """To be called when the work has come to its end by itself.

        Raises:
            JournalMismatch: the journal has more: it did things once that this code did not come by.
        """
        replay = await self._load()
        self._found(replay.check_complete)

    # -- what verbs are made of ----------------------------------------------------------------------------------------

    async def come_by(self, verb: Verb, name: str = "") -> Spot:
        """The next place in this line of execution, and what stands there.

        Raises:
            JournalMismatch: something else was done here before.
            LimitExceeded: the name is too long, or the journal is full.
            ConfigurationError, Parked, asyncio.CancelledError: no verb may be used here now (`_line_for`).
        """
        short("The name", name, self.limits.step_name, "step_name")
        replay = await self._load()
        line = self._line_for(verb, name)
        if self._is_unwinding(line):
            return Spot("", None, loose=True)
        place = self._next_place(line)
        spot = Spot(place, self._found(lambda: replay.find(place, verb, name)))
        if spot.entry is None and verb is not Verb.GATHER:
            self._room.for_entry()
        return spot

    def make_room(self, size: int) -> None:
        """Keep another value of `size` bytes in the journal.

        Raises:
            LimitExceeded: the journal would take too many.
        """
        self._room.for_value(size)

    async def record(self, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None) -> Entry:
        """Write an entry, and see it through: what was done must not be forgotten because somebody cancels now.

        Raises:
            LeaseLost: this run no longer counts.
            NotStorable: the value has no JSON form.
        """
        replay = await self._load()
        writing = asyncio.create_task(
            patience.persist(lambda: self.store.record(self.claim, entry, wake_in_ms=wake_in_ms, note=note))
        )
        try:
            recorded = await asyncio.shield(writing)
        except asyncio.CancelledError:
            await branches.ended([writing])
            raise
        replay.note(recorded)
        return recorded

    def wait_for(self, *places: str) -> NoReturn:
        """Park until one of the entries at `places` is over, or its time has come.

        Raises:
            Parked: always.
        """
        self.check_going()
        self._waiting.for_any(places)
        self._here.park()

    def has_come(self, entry: Entry) -> bool:
        """Whether the time of an entry had come when this run began. Not judged anew, so that the run is one moment."""
        return entry.wake_at is not None and entry.wake_at <= self.claim.at

    def check_going(self) -> None:
        """That the work may begin something new.

        Raises:
            asyncio.CancelledError: the run makes way; or it began only so that the work hears of its cancellation. That
                is said once a line: what it does then is clean-up.
        """
        self._check_way()
        if self._began_cancelled and not self._here.cancelled:
            self._here.cancelled = True
            raise asyncio.CancelledError

    @contextmanager
    def inside(self, step: str) -> Generator[None]:
        """A block in which no durable verb may be used: replay would not come by it."""
        token = lines.step.set(step)
        try:
            yield
        finally:
            lines.step.reset(token)

    async def reload(self, place: str) -> Entry | None:
        """The entry at `place` as it is in the store now."""
        return (await self._recorded()).entries.get(place)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _recorded(self) -> Journal:
        try:
            return await patience.persist(lambda: self.store.journal(self.claim))
        except Unreadable as error:  # no bug of the work's, but it must not go on without, whatever it catches
            self._give_up(error)

    async def _load(self) -> Replay:
        async with self._loading:
            if self._replay is None:
                self._journal = await self._recorded()
                self._room = Room(self.limits, self._journal)
                self._replay = Replay(self._journal)
            return self._replay

    @property
    def _here(self) -> Line:
        return lines.current.get() or self._root

    def _line_for(self, verb: Verb, name: str = "") -> Line:
        """The line that a verb is on, if it may be used there now.

        Raises:
            ConfigurationError: it may never be: in a step, or in a task of asyncio's that is no branch.
            Parked: the line has to wait, and this is what its unwinding runs into.
            asyncio.CancelledError: the run makes way for another one, and whatever it began now would be in its way; or
                the task is being cancelled, and can't wait for anything any more.
        """
        line = self._here
        if (misuse := lines.misuse(line, verb, name)) is not None:
            self._give_up(misuse)
        if line.is_parked(verb):
            raise Parked
        self._check_way()
        if self._is_unwinding(line) and (verb in WAITING or (verb is Verb.SLEEP and name)):
            raise asyncio.CancelledError
        return line

    def _check_way(self) -> None:
        """That the run need not make way, which is all that a thread can be told: it can't be interrupted.

        Raises:
            asyncio.CancelledError: it has to.
        """
        if self.stop is Stop.LOST or (self.delivered and self.stop is not Stop.CANCEL):
            self.refused = True
            raise asyncio.CancelledError

    def _is_unwinding(self, line: Line) -> bool:
        """Whether the task is being cancelled and the work knows: what it does now will not be replayed."""
        return line.cancelled or (self.delivered and self.stop is Stop.CANCEL)

    def _next_place(self, line: Line) -> str:
        place = line.scope.next_place()
        if len(place) > MAX_PLACE:
            raise LimitExceeded(f"Gathers lie within gathers so deep that a place has more than {MAX_PLACE} characters")
        if (error := sys.exc_info()[1] or lines.handling.get()) is not None:
            self._meanwhile.append((place, error))
        return place

    def _found(self, look: Callable[[], T]) -> T:
        """What `look` returns. What it raises is a bug of the work's, and noted as such."""
        try:
            return look()
        except (JournalMismatch, InputKeyReused) as bug:
            self._give_up(bug)

    def _give_up(self, bug: PerdureError) -> NoReturn:
        """Note a bug of the work's and raise it.

        It may get lost on its way out: in an `except`, or in two coroutines side by side of which the other came first.
        """
        self.bug = self.bug or bug
        raise bug


def _nothing() -> None:
    """Nobody waits for the shield."""
