"""The worker: claim, run, and give everything back in order at the end.

One worker is one session, which is the lease of all that it runs. Three loops keep it going: one claims as long as
there are slots, one renews the lease (and hears there who was cancelled), one looks after dead neighbours. Each claimed
run is an `Execution`, seen through by a task of its own in the same group.

A run that is lost leaves `_held` at once, and its slot is free only when its work has ended. The two differ where it
matters: the same task may be claimed here again, under a new session, while its lost run is still cleaning up; what is
told to the task then must reach the new run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from perdure.domain import policy
from perdure.domain.errors import LeaseLost, StoreUnavailable
from perdure.domain.limits import Limits
from perdure.domain.model import JSON, Change, Claim, JSONObject
from perdure.store.base import Store

from . import lease, patience
from .demand import Planner
from .execution import Execution
from .handler import Handlers
from .run import Stop

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

_UNWIND = 2.0
"""Seconds that cancelled work has for its cleanup at a shutdown, once the grace period is over; and then the store, to
take the session back."""


class Worker:
    """Runs tasks of `store` for which `handlers` has a handler, `concurrency` at a time. Serves once.

    `queues`: as `demand.Planner`. `lease_ms`: how long after its last sign of life others may take over. `grace_ms`:
    how long tasks may go on at a shutdown before they are handed to others. `cleanup_ms`: how long the work of a task
    has for its end once it was told to stop. `poll_ms`: how often to look for work that nobody told of (other
    processes' tasks, timers). `about`: what the session says of the process besides where it lives and what it runs.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        *,
        concurrency: int,
        lease_ms: int,
        grace_ms: int,
        poll_ms: int,
        cleanup_ms: int = 10_000,
        queues: Mapping[str, int | None] | None = None,
        limits: Limits | None = None,
        about: Mapping[str, JSON] | None = None,
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._planner = Planner(concurrency, queues)
        self._limits = limits or Limits()
        self._about = about or {}
        self._lease_ms = lease_ms
        self._grace = grace_ms / 1000
        self._cleanup = cleanup_ms / 1000
        self._poll = poll_ms / 1000
        self._running: dict[Execution, asyncio.Task[None]] = {}
        self._held: dict[int, Execution] = {}
        self._hints: dict[int, Stop] | None = None
        """Who was told to stop while a claim is under way.

        The store may have committed it already without its caller having been resumed: what is said about a task in
        that moment finds no run here, and would be heard of at the next renewal only, or never.
        """
        self._session = ""
        self._strays = frozenset[tuple[int, int]]()
        """What the last look found the session to hold without anybody here running it."""
        self._renewing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._missed = asyncio.Event()
        """Something may have been said about the runs that nobody here has heard."""
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
            for execution in self._running:  # none, unless the group broke before their supervisors began
                execution.abandon()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            heartbeat = group.create_task(self._keep_lease())
            neighbours = group.create_task(lease.Neighbours(self._store, self._keep_own, self._lease_ms).watch())
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
                logger.debug("could not begin: the store is unavailable")
                await patience.within(patience.BACKOFF, self._stopping.wait())
            else:
                return True
        return False

    async def _begin_session(self) -> None:
        handlers: list[JSON] = [*self._planner.served(self._handlers)]
        info: JSONObject = {**lease.identity(), "handlers": handlers, **self._about}
        session = await self._store.open_session(self._lease_ms, info)
        self._session = session.id

    async def _keep_lease(self) -> None:
        every = policy.renew_every(self._lease_ms) / 1000
        pause = every
        while True:
            await patience.within(pause, self._missed.wait())
            self._missed.clear()
            try:
                await self._renew()
            except StoreUnavailable:
                logger.debug("could not renew the lease: the store is unavailable")
                pause = min(every, patience.BACKOFF)
            else:
                pause = every

    async def _renew(self) -> None:
        """Prolong the lease, or begin a new one if it was taken over.

        One at a time: whoever finds the lease lost comes here, and two new sessions would mean that one of them is
        claimed with and the other renewed. The store is asked for nothing more on the way, since the next renewal comes
        a while after this one is through: with an answer to wait for per run, a worker that has many of them would be
        late because of its load, and lose them all.
        """
        async with self._renewing:
            before = tuple(self._held.items())  # what is claimed while the store looks may be missing in what it found
            try:
                renewal = await self._store.renew(self._session, self._lease_ms)
            except LeaseLost:
                await self._start_over()
                return
            for seq in renewal.cancelled:
                self._tell(seq, Stop.CANCEL)
            self._drop_lost(before, renewal.held)
            await self._give_back_strays(renewal.held)

    def _drop_lost(self, before: Iterable[tuple[int, Execution]], held: frozenset[tuple[int, int]]) -> None:
        """Stop what has ended or was freed behind our back.

        Its `ttl` or its deadline ran out, somebody deleted it, or the store has lost the claim.
        """
        for seq, execution in before:
            if (seq, execution.claim.fence) not in held and self._held.get(seq) is execution:
                self._tell(seq, Stop.LOST)

    async def _give_back_strays(self, held: frozenset[tuple[int, int]]) -> None:
        """Give back what the session holds though nothing here runs it.

        What was written is lost where a standby takes over that lacks the last commits, or a backup is restored. The
        session lives on, and so nobody would ever take the run over from it. A run that has ended while the store
        looked is no such stray, so only what is found twice counts; and none can be told from a run that is being
        claimed.
        """
        if self._hints is not None:
            return
        strays = held - {(execution.claim.seq, execution.claim.fence) for execution in self._running}
        again, self._strays = strays & self._strays, strays
        count = await self._store.give_back(self._session, again) if again else 0
        if count:
            logger.warning("the store has lost what became of runs of this worker; they begin anew (tasks: %d)", count)

    async def _keep_own(self) -> str:
        await self._renew()
        return self._session

    async def _start_over(self) -> None:
        """The lease lapsed and somebody took over: nothing that runs here counts any more."""
        # Not `_held`: what was already heard to be lost, from another worker's end of it, is still being stopped.
        if self._running:
            logger.error("the lease lapsed; what runs here is left to other workers (tasks: %d)", len(self._running))
        else:
            logger.warning("the lease lapsed; nothing ran here, and it is begun anew")
        for seq in tuple(self._held):
            self._tell(seq, Stop.LOST)
        await patience.persist(self._begin_session)
        self._wake.set()

    # -- claiming ------------------------------------------------------------------------------------------------------

    async def _keep_claiming(self, group: asyncio.TaskGroup) -> None:
        """Claim until `stop`. Never cancelled while the store is at it, or what it claimed would lie idle."""
        while not self._stopping.is_set():
            self._wake.clear()
            more = await self._claim(group) if self._planner.free > 0 else False
            if not more:
                await patience.within(self._poll, self._wake.wait())

    async def _claim(self, group: asyncio.TaskGroup) -> bool:
        """Start what can be claimed. Returns whether there may be more, and slots for it."""
        more = False
        self._hints = {}
        try:
            for wanted in self._planner.plan(self._handlers):
                claims = await self._store.claim(self._session, wanted.demands, wanted.limit)
                more = more or len(claims) == wanted.limit
                for claim in claims:
                    self._start(group, claim)
        except LeaseLost:
            await patience.persist(self._renew)
        except StoreUnavailable:
            logger.debug("could not claim: the store is unavailable")
            await asyncio.sleep(patience.BACKOFF)
        else:
            return more and self._planner.free > 0
        finally:
            self._hints = None
        return False

    # -- running -------------------------------------------------------------------------------------------------------

    def _start(self, group: asyncio.TaskGroup, claim: Claim) -> None:
        handler = self._handlers[claim.operation.handler]
        execution = Execution(self._store, handler, claim, cleanup=self._cleanup, limits=self._limits)
        self._planner.began(claim)
        if claim.seq in self._held:  # freed behind its back (it was overdue), though it goes on
            self._tell(claim.seq, Stop.LOST)
        self._held[claim.seq] = execution
        self._running[execution] = group.create_task(self._see_through(execution))
        if self._hints and claim.seq in self._hints:
            self._tell(claim.seq, self._hints[claim.seq])

    async def _see_through(self, execution: Execution) -> None:
        try:
            await execution.see_through()
            self._let_go(execution)
            await execution.gone()
        finally:
            execution.abandon()
            self._let_go(execution)
            del self._running[execution]
            self._planner.ended(execution.claim)
            self._wake.set()

    def _let_go(self, execution: Execution) -> None:
        if self._held.get(execution.claim.seq) is execution:
            del self._held[execution.claim.seq]
            self._wake.set()

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _on_change(self, change: Change | None) -> None:
        if change is None:  # there may be work; and who was cancelled is heard at a renewal
            self._wake.set()
            self._missed.set()
            return
        if change.runnable:
            self._wake.set()
        if change.cancel:
            self._tell(change.seq, Stop.CANCEL)
        elif change.status.terminal:
            self._tell(change.seq, Stop.LOST)

    def _tell(self, seq: int, why: Stop) -> None:
        execution = self._held.get(seq)
        if execution is not None:
            execution.tell(why)
            if execution.run.stop is Stop.LOST:
                self._let_go(execution)
        elif self._hints is not None:
            self._hints[seq] = why

    async def _drain(self, claiming: asyncio.Task[None]) -> None:
        """Wait for the last claim and for what runs; what does not end in time goes to others."""
        if self._held:
            logger.info("the worker stops: it waits up to %g s for what runs (tasks: %d)", self._grace, len(self._held))
        await patience.within(self._grace, self._no_more(self._held, claiming))
        claiming.cancel()
        if self._held:
            logger.info("the grace period is over; what runs is stopped and handed over (tasks: %d)", len(self._held))
        for seq in tuple(self._held):
            self._tell(seq, Stop.SHUTDOWN)
        if not await patience.within(_UNWIND, self._no_more(self._running)):
            logger.warning("work did not stop in time, and is left to other workers (tasks: %d)", len(self._running))
        for supervisor in self._running.values():
            supervisor.cancel()

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
