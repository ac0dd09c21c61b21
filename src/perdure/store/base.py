"""The `Store` protocol: what the engine and the wire may ask of a store, in domain verbs.

Each verb is one atomic operation: it happens whole or not at all, and when it returns, what it wrote survives the loss
of the process and of power (`memory` aside). No verb ever waits for a worker, and no transaction is held across user
code.

Time is the store's own. Verbs take spans, never instants: the one clock that decides leases, expiry and timestamps
belongs to the backend (a database's clock where several machines share it), and a test passes its own to the
constructor.

Writes of a worker carry its `Claim`; the fence in it must still hold, else the verb raises `LeaseLost` and changes
nothing.

A value that has no JSON form, or text that UTF-8 can't carry, makes the verb that would store it raise `NotStorable`;
nothing is changed then. What a verb returns is the caller's own: changing it changes nothing that is stored.

Every verb may raise `StoreUnavailable`: nothing was changed, or the outcome is unknown to the caller and the verb is
safe to call again. A verb that is cancelled while it waits may still happen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from perdure.domain.inputs import Journal
from perdure.domain.model import (
    JSON,
    Change,
    Claim,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Renewal,
    Session,
    Task,
)

__all__ = ["Listener", "Store", "Unsubscribe"]

Listener = Callable[[Change], None]
"""Called on the event loop after a change was committed. Must not block or raise."""

Unsubscribe = Callable[[], None]


class Store(Protocol):
    """Durable tasks. One instance serves one process; several processes may share what lies beneath it."""

    # -- lifetime ------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open for use from the running event loop, and bring the schema up to date.

        Raises:
            StoreUnusable: it can't be used as it stands; one line says why and what to do.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun and release everything. Safe to call twice."""
        ...

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` for every change that this store commits, until the returned function is called."""
        ...

    # -- what clients ask ----------------------------------------------------------------------------------------------

    async def create(self, new: NewTask) -> Task:
        """Make a task, runnable at once. When this returns, `get` resolves the id on any replica (contract 2).

        An id that stands there already is this owner's task from an earlier call, and is returned as it is now.

        Raises:
            TaskNotFound: the id is somebody else's. Ids are minted at random, so this means a broken source.
        """
        ...

    async def get(self, owner: Owner, task_id: str) -> Task:
        """The task as it is now, with its outstanding inputs.

        Raises:
            TaskNotFound: no such task for this owner.
            TaskExpired: it was this owner's and was purged a while ago.
        """
        ...

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        """Record answers to outstanding questions.

        Whatever else is in `responses` is ignored, as is all of it on a terminal task. The first answer to a key wins,
        across replicas. With the last one the task is `working` again and runnable.

        Raises:
            TaskNotFound, TaskExpired: as `get`.
        """
        ...

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        """Ask the task to stop.

        Nobody is running it: `cancelled` at once. Somebody is: the intent is stored and passed on. Idempotent; a
        terminal task stays as it is.

        Raises:
            TaskNotFound, TaskExpired: as `get`.
        """
        ...

    # -- what workers ask ----------------------------------------------------------------------------------------------

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        """Begin a lease of `lease_ms`. `info` is what neighbours may know of the process."""
        ...

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        """Prolong the lease to `lease_ms` from now.

        Raises:
            LeaseLost: it lapsed and was taken over; none of its claims holds any more.
        """
        ...

    async def close_session(self, session_id: str) -> None:
        """End the lease; whatever it still holds becomes runnable at once, with its attempt unchanged."""
        ...

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        """All sessions, each with whether its lease has lapsed."""
        ...

    async def take_over(self, gone: Collection[str] = (), *, keep: str = "") -> int:
        """Free the runs of all lapsed sessions and of those in `gone`, whose processes are known to be dead.

        The session `keep` is the caller's own and is left alone, lapsed or not.
        Each freed run has lost one attempt; one that has none left fails its task (`lifecycle.exhausted`). Returns how
        many runs were freed or failed. Any number of replicas may call this at once; each run is freed once.
        """
        ...

    async def claim(self, session_id: str, handlers: Sequence[str], limit: int) -> tuple[Claim, ...]:
        """Up to `limit` due runs whose operation has a handler in `handlers`.

        They come in the order of `handlers`, and within each the one that has been due longest is first. The order is
        the caller's, who can rotate it so that no handler starves another.

        Raises:
            LeaseLost: the session is gone.
        """
        ...

    async def journal(self, claim: Claim) -> Journal:
        """All questions that the task ever asked, in the order of asking, with the answers."""
        ...

    async def report(self, claim: Claim, message: str) -> None:
        """Show `message` as the task's status message.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...

    async def park(self, claim: Claim, asked: Mapping[str, JSONObject]) -> Task:
        """Put the run aside until `asked` is answered: no lease, no worker, no memory.

        Returns the task as it is then: `input_required`; or `working`, if all answers are there already, and then the
        run is due at once; or `cancelled`, if that was asked for meanwhile.

        Raises:
            LeaseLost: the fence no longer holds.
            InputKeyReused: a key was used before for another question.
        """
        ...

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        """Write the terminal status and the result in one, and end the run.

        Raises:
            LeaseLost: the fence no longer holds; the outcome is discarded.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Give the run back unfinished; it is runnable at once, with its attempt unchanged.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...

    # -- housekeeping --------------------------------------------------------------------------------------------------

    async def expire(self, limit: int) -> int:
        """Fail up to `limit` unfinished tasks whose ttl has run out. Returns how many."""
        ...

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        """Delete up to `limit` finished tasks whose ttl ran out at least `linger_ms` ago, and all that belongs to them.

        Each leaves a tombstone for its owner that lives for `tombstone_ms`; older tombstones go. Returns how many tasks
        were deleted.
        """
        ...
