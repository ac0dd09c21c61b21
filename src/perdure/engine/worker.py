"""The worker: claim, run, commit, and give everything back in order at the end.

One worker is one session, which is the lease of all that it runs. Three loops keep it going: one claims as long as
there are slots, one renews the lease (and hears there who was cancelled), one looks after dead neighbours. Each claimed
run is a task of its own in the same group. Whatever a run ends in is written with its claim's fence; `LeaseLost` from
such a write means that somebody else has the run, so the result is dropped and never tried again.

A cancellation is delivered to the coroutine of the work once; what the work then does decides how the task ends. Work
in a thread is not cancelled, it sees `Run.stopping`. At a shutdown it is the worker that ends the run and not the
client: what cancelled work still returns then is no result, and the run goes to another worker.

A run that is lost leaves `_held` at once and `_running` when its work has ended. The two differ where it matters: the
same task may be claimed here again, under a new session, while its lost run is still cleaning up; what is told to the
task then must reach the new run, and the slot of the old one is not free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from perdure.domain import policy
from perdure.domain.errors import (
    InputKeyReused,
    LeaseLost,
    NotStorable,
    StoreUnavailable,
    TaskExpired,
    TaskNotFound,
)
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import Cancelled, Change, Claim, Failed, Failure, JSONObject, Outcome, Task
from perdure.store.base import Store

from . import lease, patience
from .handler import Handler, Handlers
from .run import Run, Stop

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

_UNWIND = 2.0
"""Seconds that cancelled work has for its cleanup at a shutdown, once the grace period is over; and then the store, to
take the session back."""


@dataclass(slots=True, eq=False)
class _Running:
    run: Run
    handler: Handler
    work: asyncio.Task[Outcome | None]
    supervisor: asyncio.Task[None] = field(init=False)

    def tell(self, why: Stop) -> None:
        """Ask the work to stop. Said once: a second cancellation would break into the cleanup after the first."""
        if self.work.done() or (self.run.stop is not None and why is not Stop.LOST):
            return
        delivered = self.run.stop is not None
        self.run.end(why)
        if not self.handler.threaded and not delivered:
            self.work.cancel()

    @property
    def interrupted(self) -> bool:
        """Whether the work was cut short by a shutdown, so that whatever it returned is at best half of it."""
        return self.run.stop is Stop.SHUTDOWN and not self.handler.threaded

    def abandon(self) -> None:
        """Stop caring. Whatever the work still does, nothing of it counts."""
        self.run.end(Stop.LOST)
        self.work.cancel()


class Worker:
    """Runs tasks of `store` for which `handlers` has a handler, `concurrency` at a time. Serves once.

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
        self._running: set[_Running] = set()
        self._held: dict[int, _Running] = {}
        self._hints: dict[int, Stop] | None = None
        """Who was told to stop while a claim is under way.

        The store may have committed it already without its caller having been resumed: what is said about a task in
        that moment finds no run here, and would be heard of at the next renewal only, or never.
        """
        self._session = ""
        self._rotation = 0
        self._renewing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Begin a graceful shutdown; `serve` returns once it is done."""
        self._stopping.set()
        self._wake.set()

    async def serve(self) -> None:
        """Work until `stop`; then let tasks finish for the grace period, and hand over the rest."""
        unsubscribe = self._store.subscribe(self._on_change)
        try:
            if await self._begin():
                await self._work()
                await self._hand_over()
        finally:
            unsubscribe()
            for running in self._running:  # none, unless the group broke before their supervisors began
                running.abandon()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            heartbeat = group.create_task(self._keep_lease())
            neighbours = group.create_task(lease.Neighbours(self._store, self._keep_own).watch())
            claiming = group.create_task(self._keep_claiming(group))
            await self._stopping.wait()
            neighbours.cancel()
            await self._drain(claiming)
            heartbeat.cancel()

    # -- the lease -----------------------------------------------------------------------------------------------------

    async def _begin(self) -> bool:
        """Whether a session was opened: not if `stop` came before the store would take it."""
        while not self._stopping.is_set():
            try:
                await self._begin_session()
            except StoreUnavailable:
                logger.warning("could not begin: the store is unavailable")
                await patience.within(patience.BACKOFF, self._stopping.wait())
            else:
                return True
        return False

    async def _begin_session(self) -> None:
        session = await self._store.open_session(self._lease_ms, lease.identity())
        self._session = session.id

    async def _keep_lease(self) -> None:
        every = policy.renew_every(self._lease_ms) / 1000
        pause = every
        while True:
            await asyncio.sleep(pause)
            try:
                await self._renew()
            except StoreUnavailable:
                logger.warning("could not renew the lease: the store is unavailable")
                pause = min(every, patience.BACKOFF)
            else:
                pause = every

    async def _renew(self) -> None:
        """Prolong the lease, or begin a new one if it was taken over.

        One at a time: whoever finds the lease lost comes here, and two new sessions would mean that one of them is
        claimed with and the other renewed.
        """
        async with self._renewing:
            try:
                renewal = await self._store.renew(self._session, self._lease_ms)
            except LeaseLost:
                await self._start_over()
                return
            for seq in renewal.cancelled:
                self._tell(seq, Stop.CANCEL)
            for seq, running in tuple(self._held.items()):
                if await self._is_over(running.run.claim.task):
                    self._tell(seq, Stop.LOST)

    async def _keep_own(self) -> str:
        await self._renew()
        return self._session

    async def _is_over(self, task: Task) -> bool:
        """Whether a running task has ended behind our back: another process may have found that its ttl ran out."""
        if task.ttl_ms is None:
            return False
        try:
            return (await self._store.get(task.owner, task.id)).status.terminal
        except (TaskNotFound, TaskExpired):
            return True

    async def _start_over(self) -> None:
        """The lease lapsed and somebody took over: nothing that runs here counts any more."""
        logger.error("the lease lapsed; %d running tasks are abandoned to other workers", len(self._held))
        for seq in tuple(self._held):
            self._tell(seq, Stop.LOST)
        await patience.persist(self._begin_session)
        self._wake.set()

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _keep_claiming(self, group: asyncio.TaskGroup) -> None:
        """Claim until `stop`. Never cancelled while the store is at it, or what it claimed would lie idle."""
        while not self._stopping.is_set():
            self._wake.clear()
            free = self._concurrency - len(self._running)
            claimed = await self._claim(group, free) if free > 0 else 0
            if claimed < free or free <= 0:
                await patience.within(self._poll, self._wake.wait())

    async def _claim(self, group: asyncio.TaskGroup, free: int) -> int:
        """Start what can be claimed; how many."""
        self._hints = {}
        try:
            claims = await self._store.claim(self._session, self._next_handlers(), free)
            for claim in claims:
                self._start(group, claim)
        except LeaseLost:
            await patience.persist(self._renew)
        except StoreUnavailable:
            logger.warning("could not claim: the store is unavailable")
            await asyncio.sleep(patience.BACKOFF)
        else:
            return len(claims)
        finally:
            self._hints = None
        return 0

    def _next_handlers(self) -> list[str]:
        """All handlers' names, begun one further each time, so that a busy tool does not starve the others."""
        names = list(self._handlers)
        self._rotation = (self._rotation + 1) % max(1, len(names))
        return names[self._rotation :] + names[: self._rotation]

    # -- running -------------------------------------------------------------------------------------------------------

    def _start(self, group: asyncio.TaskGroup, claim: Claim) -> None:
        run = Run(self._store, claim)
        handler = self._handlers[claim.task.operation.handler]
        # Outside the group on purpose: a group waits for its children, and work that never ends must not hold it up.
        work = asyncio.create_task(_guarded(handler, run, claim.task.operation.params))
        running = _Running(run, handler, work)
        self._running.add(running)
        self._held[claim.seq] = running
        running.supervisor = group.create_task(self._see_through(running))
        if self._hints and claim.seq in self._hints:
            self._tell(claim.seq, self._hints[claim.seq])

    async def _see_through(self, running: _Running) -> None:
        """Wait for the work and write what it came to."""
        run, work = running.run, running.work
        try:
            await asyncio.wait({work})
            outcome = None if work.cancelled() or running.interrupted else work.result()
            await patience.persist(lambda: self._settle(run, outcome))
        except LeaseLost:
            logger.warning("task number %d is over, or another worker runs it; this run is dropped", run.claim.seq)
        finally:
            running.abandon()
            self._running.discard(running)
            if self._held.get(run.claim.seq) is running:
                del self._held[run.claim.seq]
            self._wake.set()

    async def _settle(self, run: Run, outcome: Outcome | None) -> None:
        try:
            await self._write(run, outcome)
        except (LeaseLost, StoreUnavailable):
            raise
        except (InputKeyReused, NotStorable) as error:
            await self._store.finish(run.claim, _internal_error(str(error)))
        except Exception:  # the boundary around one task's outcome: let through, it would end the group and all others
            logger.exception("what task number %d came to could not be stored", run.claim.seq)
            await self._store.finish(run.claim, _internal_error("Internal error"))

    async def _write(self, run: Run, outcome: Outcome | None) -> None:
        if run.clash is not None:
            await self._store.finish(run.claim, _internal_error(str(run.clash)))
        elif run.asked:
            # Whatever the work made of `Parked`. If it was cancelled meanwhile, the store knows, and ends it.
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
        running = self._held.get(seq)
        if running is not None:
            running.tell(why)
            if running.run.stop is Stop.LOST:
                del self._held[seq]
                self._wake.set()
        elif self._hints is not None:
            self._hints[seq] = why

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        """Wait for the last claim and for what runs; what does not end in time goes to others."""
        await patience.within(self._grace, self._no_more(self._held, claiming))
        claiming.cancel()
        for seq in tuple(self._held):
            self._tell(seq, Stop.SHUTDOWN)
        if not await patience.within(_UNWIND, self._no_more(self._running)):
            logger.warning("%d tasks did not stop in time; other workers will run them again", len(self._running))
        for running in self._running:
            running.supervisor.cancel()

    async def _no_more(self, runs: Collection[object], claiming: asyncio.Task[None] | None = None) -> None:
        if claiming is not None:
            await asyncio.wait({claiming})
        while runs:
            self._wake.clear()
            await self._wake.wait()

    async def _hand_over(self) -> None:
        """End the session. What it still holds is freed with it, with its attempt unchanged."""
        if not await patience.within(_UNWIND, patience.persist(lambda: self._store.close_session(self._session))):
            logger.warning("could not end the session: the store is unavailable; its lease will lapse")


async def _guarded(handler: Handler, run: Run, params: JSONObject) -> Outcome | None:
    """The boundary around a handler: whatever comes out of it is an outcome, None (parked), or a wanted cancellation.

    `SystemExit` and `KeyboardInterrupt` too: let through, asyncio would hand them to the event loop, and one tool would
    stop the server.
    """
    try:
        return await handler(run, params)
    except LeaseLost:
        return _internal_error("Internal error")  # which the store will refuse, for the same reason
    except BaseException as error:
        if run.stopping and isinstance(error, asyncio.CancelledError):
            raise
        if run.asked:  # `Parked`, or what became of it on its way out (a task group wraps it)
            return None
        if isinstance(error, InputKeyReused):
            return _internal_error(str(error))
        logger.exception("the handler of task number %d raised", run.claim.seq)
        return _internal_error("Internal error")


def _internal_error(message: str) -> Failed:
    return Failed(Failure(INTERNAL_ERROR, message), message)
