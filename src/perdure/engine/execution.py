"""One claim being worked off: the work, who tells it to stop and when, and the one write of what it came to.

A cancellation is delivered to the coroutine of the work once, and not while it is shielded; what the work then does
decides how the task ends, within a bound: past that the intent is carried out and the work is left to itself. Work in a
thread is not cancelled: it sees `Run.stopping`, and where the run has to make way its verbs begin nothing more. Where
it is not the client that ends a run but a shutdown or a deadline, what the work still returns is at best half of a
result, and is dropped; but not what a thread returns at a shutdown that no verb has held up.

Whatever is written carries the claim's fence; `LeaseLost` from such a write means that somebody else has the run, so
the result is dropped and never tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from perdure.domain import ids, verdicts
from perdure.domain.errors import LeaseLost, NotStorable, PerdureError, StoreUnavailable, Unreadable
from perdure.domain.journal import Waits
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.limits import Limits
from perdure.domain.model import Cancelled, Claim, Failed, Failure, JSONObject, Outcome
from perdure.store.base import PUT_OFF, Store

from . import patience
from .handler import Again, Handler
from .run import Run, Stop

__all__ = ["Execution"]

logger = logging.getLogger(__name__)


class Execution:
    """Runs the work of one claim. To be made on the event loop; the work begins at once.

    `cleanup`: seconds that the work has for its end once it was told to stop. `limits`, `pause`, `chance`: as
    `Run`.
    """

    def __init__(
        self,
        store: Store,
        handler: Handler,
        claim: Claim,
        *,
        cleanup: float,
        limits: Limits | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.run = Run(store, claim, limits, pause, chance)
        self.run.on_unshielded = self._deliver_held_back
        self._store = store
        self._handler = handler
        self._cleanup = cleanup
        self._held_back = False
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # In no group on purpose: a group waits for its children, and work that never ends must not hold it up.
        self._work = asyncio.create_task(_guarded(handler, self.run, claim.operation.params))
        if self.run.cancelled_before:
            self.run.end(Stop.CANCEL)
            self._told.set_result(None)

    @property
    def claim(self) -> Claim:
        return self.run.claim

    @property
    def _known_as(self) -> str:
        return ids.abbreviated(self.claim.task.id)

    # -- telling the work ----------------------------------------------------------------------------------------------

    def tell(self, why: Stop) -> None:
        """Ask the work to stop. Said once: a second cancellation would break into the cleanup after the first."""
        if self._work.done() or (self.run.stop is not None and why is not Stop.LOST):
            self.run.cancelled = self.run.cancelled or why is Stop.CANCEL
            return
        delivered = self.run.stop is not None and not self._held_back
        self.run.end(why)
        if not self._told.done():
            self._told.set_result(None)
        if not delivered:
            self._deliver()

    def _deliver(self) -> None:
        self._held_back = self.run.shielded > 0 and self.run.stop is not Stop.LOST
        if self._held_back:
            return
        self.run.delivered = not self._handler.threaded or self.run.stop is not Stop.CANCEL
        if not self._handler.threaded:
            self._work.cancel()

    def _deliver_held_back(self) -> None:
        if self._held_back:
            self._deliver()

    def abandon(self) -> None:
        """Stop caring. Whatever the work still does, nothing of it counts."""
        self.run.end(Stop.LOST)
        if not self._handler.threaded:  # else nobody would know any more when the thread ends
            self._work.cancel()

    # -- seeing it through ---------------------------------------------------------------------------------------------

    async def see_through(self) -> bool:
        """Wait for the work and write what it came to. Returns whether that counted."""
        try:
            await self._wait()
            outcome = self._outcome()
            if self.run.stop is not Stop.LOST:
                await patience.persist(lambda: self._write_outcome(outcome))
        except LeaseLost:
            self.run.end(Stop.LOST)
        counted = self.run.stop is not Stop.LOST
        if not counted:
            logger.warning("task %s is over, or another worker runs it; this run is dropped", self._known_as)
        self.abandon()
        return counted

    async def gone(self) -> None:
        """Wait until the work has really ended, which may be long after anybody cared (a thread can't be stopped)."""
        await asyncio.wait({self._work})

    async def _wait(self) -> None:
        """Until the work is over, or has had its time."""
        deadline, at = self.claim.deadline_at, self.claim.at
        left = None if deadline is None else (deadline - at) / 1000
        await asyncio.wait({self._work, self._told}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if self._work.done():
            return
        self.tell(Stop.TIMEOUT)
        await asyncio.wait({self._work}, timeout=self._cleanup)
        if not self._work.done():
            logger.warning("task %s did not end within %g s of being told to", self._known_as, self._cleanup)

    def _outcome(self) -> Outcome | Again | None:
        match self.run.stop:
            case Stop.TIMEOUT:
                return self._handler.overrun(self.run)
            case Stop.SHUTDOWN if self.run.refused or not self._handler.threaded:
                return None
            case _:
                return self._work.result() if self._work.done() and not self._work.cancelled() else None

    async def _write_outcome(self, outcome: Outcome | Again | None) -> None:
        """Write it, or leave the task to others: that it can't be read here is no concern of the worker's."""
        try:
            await self._write_some_end(outcome)
        except Unreadable as error:
            await self._put_off(error)

    async def _write_some_end(self, outcome: Outcome | Again | None) -> None:
        """Write it, or else that it could not be stored: a task must come to some end."""
        try:
            await self._write(outcome)
        except (LeaseLost, StoreUnavailable, Unreadable):
            raise
        except PerdureError as error:
            logger.warning("what task %s came to could not be stored: %s", self._known_as, error)
            await self._store.finish(self.claim, _internal_error(str(error)))
        except Exception:  # the boundary around one task's outcome: let through, it would end the worker
            logger.exception("what task %s came to could not be stored", self._known_as)
            await self._store.finish(self.claim, _internal_error(verdicts.INTERNAL))

    async def _put_off(self, error: Unreadable) -> None:
        """Leave it to whoever can read what is on record, or to a later time. It is no fault of the tool's."""
        logger.error("task %s is put off for %d s: %s", self._known_as, PUT_OFF // 1000, error)
        try:
            await self._store.retry(self.claim, PUT_OFF, str(error), counted=False)
        except Unreadable:  # nor can it be read how the task stands: then the store puts off what it is given back
            await self._store.give_back(self.claim.session, frozenset({(self.claim.seq, self.claim.fence)}))

    async def _write(self, outcome: Outcome | Again | None) -> None:
        run, store, claim = self.run, self._store, self.claim
        if isinstance(run.bug, Unreadable):
            await self._put_off(run.bug)
        elif run.bug is not None and run.stop in (None, Stop.CANCEL):
            await store.finish(claim, _internal_error(str(run.bug)))
        elif isinstance(outcome, Again):
            await store.retry(claim, outcome.delay_ms, outcome.note, failed=outcome.failed)
        elif run.parked and run.stop is not Stop.TIMEOUT and not self._work.cancelled():
            # Whatever the work made of `Parked`. If it was cancelled meanwhile, the store knows, and ends it.
            await store.park(claim, run.waits)
        elif outcome is not None:
            await store.finish(claim, outcome)
        elif run.stop is Stop.SHUTDOWN:
            await store.release(claim)
        elif run.minding and not run.cancelled_before:
            # Comes back at once, for its code to tell whoever does the work.
            await store.park(claim, Waits(places=frozenset(run.minding), minds_cancel=True))
        else:
            await store.finish(claim, Cancelled())


async def _guarded(handler: Handler, run: Run, params: JSONObject) -> Outcome | Again | None:
    """The boundary around a handler: whatever comes out of it is an outcome, None (parked), or a wanted cancellation.

    `SystemExit` and `KeyboardInterrupt` too: let through, asyncio would hand them to the event loop, and one tool would
    stop the server.
    """
    if not handler.threaded:
        run.run_by(asyncio.current_task())
    try:
        return await handler(run, params)
    except LeaseLost:
        return _internal_error(verdicts.INTERNAL)  # which the store will refuse, for the same reason
    except BaseException as error:
        if run.stopping and isinstance(error, asyncio.CancelledError):
            raise
        if run.parked or run.bug:  # `Parked`, or what became of it on its way out (a task group wraps it)
            return None
        if isinstance(error, NotStorable):
            logger.warning("what task %s came to could not be stored: %s", ids.abbreviated(run.claim.task.id), error)
            return _internal_error(str(error))
        logger.exception("the handler of task %s raised", ids.abbreviated(run.claim.task.id))
        return _internal_error(verdicts.INTERNAL)


def _internal_error(message: str) -> Failed:
    """The failure of a task that did not come to an end of its own."""
    return Failed(Failure(INTERNAL_ERROR, message), message)
