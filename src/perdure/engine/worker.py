"""The worker: claim, run, commit, and give everything back in order at the end.

One worker is one session, which is the lease of all that it runs. Three loops keep it going: one claims as long as
there are slots, one renews the lease (and hears there who was cancelled), one looks after dead neighbours. Each claimed
run is a task of its own in the same group. Whatever a run ends in is written with its claim's fence; `LeaseLost` from
such a write means that somebody else has the run, so the result is dropped and never tried again.

A cancellation is delivered to the coroutine of the work once; what the work then does decides how the task ends. Work
in a thread is not cancelled, it sees `Run.cancelled`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from perdure.domain import policy
from perdure.domain.errors import InputKeyReused, LeaseLost, NotStorable, StoreUnavailable
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Cancelled, Change, Claim, Failed, Failure, JSONObject, Outcome
from perdure.store.base import Store

from . import lease
from .handler import Handler, Handlers
from .run import Parked, Run, Stop

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

_BACKOFF = 0.5
"""Seconds between attempts on a store that is unavailable."""
_UNWIND = 2.0
"""Seconds that cancelled work has for its cleanup at a shutdown, once the grace period is over."""


@dataclass(slots=True)
class _Running:
    run: Run
    handler: Handler
    work: asyncio.Task[Outcome | None]


class Worker:
    """Runs tasks of `store` for which `handlers` has a handler, `concurrency` at a time.

    `lease_ms`: how long after its last sign of life others may take over. `grace_ms`: how long tasks may go on at a
    shutdown before they are handed to others. `poll_ms`: how often to look for work that nobody told of (other
    processes' tasks).
    """

    def __init__(
        self, store: Store, handlers: Handlers, *, concurrency: int, lease_ms: int, grace_ms: int, poll_ms: int
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._grace = grace_ms / 1000
        self._poll = poll_ms / 1000
        self._running: dict[int, _Running] = {}
        self._session = ""
        self._rotation = 0
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin a graceful shutdown; `serve` returns once it is done."""
        self._stopping.set()

    async def serve(self) -> None:
        """Work until `stop`; then let tasks finish for the grace period, and hand over the rest."""
        unsubscribe = self._store.subscribe(self._on_change)
        neighbours = lease.Neighbours(self._store)
        try:
            await self._persist(neighbours.take_over)
            await self._persist(self._begin_session)
            async with asyncio.TaskGroup() as group:
                heartbeat = group.create_task(self._keep_lease())
                loops = [group.create_task(self._keep_claiming(group)), group.create_task(neighbours.watch())]
                await self._stopping.wait()
                for loop in loops:
                    loop.cancel()
                await self._drain()
                heartbeat.cancel()
            await self._store.close_session(self._session)
        finally:
            unsubscribe()

    # -- the lease -----------------------------------------------------------------------------------------------------

    async def _begin_session(self) -> None:
        session = await self._store.open_session(self._lease_ms, lease.identity())
        self._session = session.id

    async def _keep_lease(self) -> None:
        every = policy.renew_every(self._lease_ms) / 1000
        while True:
            await asyncio.sleep(every)
            try:
                renewal = await self._store.renew(self._session, self._lease_ms)
            except LeaseLost:
                await self._start_over()
            except StoreUnavailable:
                logger.warning("could not renew the lease: the store is unavailable")
            else:
                for seq in renewal.cancelled:
                    self._tell(seq, Stop.CANCEL)

    async def _start_over(self) -> None:
        """The lease lapsed and somebody took over: nothing that runs here counts any more."""
        logger.error("the lease lapsed; %d running tasks are abandoned to other workers", len(self._running))
        for seq in tuple(self._running):
            self._tell(seq, Stop.LOST)
        await self._persist(self._begin_session)
        self._wake.set()

    async def _persist(self, verb: Callable[[], Awaitable[object]]) -> None:
        """Call `verb` until the store takes it."""
        while True:
            try:
                await verb()
            except StoreUnavailable:
                logger.warning("the store is unavailable; trying again")
                await asyncio.sleep(_BACKOFF)
            else:
                return

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _keep_claiming(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            free = self._concurrency - len(self._running)
            claims = await self._claim(free) if free > 0 else ()
            for claim in claims:
                self._start(group, claim)
            if len(claims) < free or free <= 0:
                await self._wait_for_work()

    async def _claim(self, free: int) -> tuple[Claim, ...]:
        try:
            return await self._store.claim(self._session, self._next_handlers(), free)
        except LeaseLost:
            await self._start_over()
        except StoreUnavailable:
            logger.warning("could not claim: the store is unavailable")
            await asyncio.sleep(_BACKOFF)
        return ()

    def _next_handlers(self) -> list[str]:
        """All handlers' names, begun one further each time, so that a busy tool does not starve the others."""
        names = list(self._handlers)
        self._rotation = (self._rotation + 1) % max(1, len(names))
        return names[self._rotation :] + names[: self._rotation]

    async def _wait_for_work(self) -> None:
        try:
            async with asyncio.timeout(self._poll):
                await self._wake.wait()
        except TimeoutError:
            pass

    # -- running -------------------------------------------------------------------------------------------------------

    def _start(self, group: asyncio.TaskGroup, claim: Claim) -> None:
        run = Run(self._store, claim)
        handler = self._handlers[claim.task.operation.handler]
        work = asyncio.create_task(_guarded(handler, run, claim.task.operation.params))
        self._running[claim.seq] = _Running(run, handler, work)
        group.create_task(self._see_through(run, work))
        if claim.task.cancel_requested:
            self._tell(claim.seq, Stop.CANCEL)

    async def _see_through(self, run: Run, work: asyncio.Task[Outcome | None]) -> None:
        """Wait for the work and write what it came to."""
        try:
            await asyncio.wait({work})
            outcome = None if work.cancelled() else work.result()
            await self._persist(lambda: self._settle(run, outcome))
        except LeaseLost:
            logger.warning("task %s: its run was taken over; what it did here is dropped", run.claim.task.id)
        finally:
            work.cancel()
            del self._running[run.claim.seq]
            self._wake.set()

    async def _settle(self, run: Run, outcome: Outcome | None) -> None:
        if run.stop is Stop.LOST:
            return
        try:
            await self._write(run, outcome)
        except (InputKeyReused, NotStorable) as error:
            await self._store.finish(run.claim, _internal_error(str(error)))

    async def _write(self, run: Run, outcome: Outcome | None) -> None:
        if run.asked and run.stop is None:
            await self._store.park(run.claim, run.asked)
        elif outcome is not None:
            await self._store.finish(run.claim, outcome)
        elif run.stop is Stop.SHUTDOWN:
            await self._store.release(run.claim)
        else:
            await self._store.finish(run.claim, Cancelled())

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _on_change(self, change: Change) -> None:
        if change.runnable:
            self._wake.set()
        if change.cancel:
            self._tell(change.seq, Stop.CANCEL)
        elif change.status.terminal:
            self._tell(change.seq, Stop.LOST)

    def _tell(self, seq: int, why: Stop) -> None:
        """Tell a run to stop. Said once: a second cancellation would break into the cleanup after the first."""
        running = self._running.get(seq)
        if running is None or running.work.done() or (running.run.stop is not None and why is not Stop.LOST):
            return
        delivered = running.run.stop is not None
        running.run.stop = why
        if not running.handler.threaded and not delivered:
            running.work.cancel()

    async def _drain(self) -> None:
        await self._wait_for_runs(self._grace)
        for seq in tuple(self._running):
            self._tell(seq, Stop.SHUTDOWN)
        if not await self._wait_for_runs(_UNWIND):
            logger.warning("%d tasks did not stop in time; other workers will run them again", len(self._running))
            for running in self._running.values():
                running.run.stop = Stop.LOST
                running.work.cancel()

    async def _wait_for_runs(self, seconds: float) -> bool:
        """Whether all runs ended within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while self._running:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return False
        return True


async def _guarded(handler: Handler, run: Run, params: JSONObject) -> Outcome | None:
    """The boundary around a handler: whatever comes out of it is an outcome, None (parked), or a cancellation.

    `SystemExit` and `KeyboardInterrupt` too: let through, asyncio would hand them to the event loop, and one tool would
    stop the server.
    """
    try:
        return await handler(run, params)
    except Parked:
        return None
    except (asyncio.CancelledError, LeaseLost):
        raise asyncio.CancelledError from None
    except BaseException:
        logger.exception("the handler of task %s raised", run.claim.task.id)
        return _internal_error("Internal error")


def _internal_error(message: str) -> Failed:
    return Failed(Failure(INTERNAL_ERROR, message), message)
