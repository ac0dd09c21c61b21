"""The `Store` protocol: what the engine and the wire may ask of a store, in domain verbs.

It is five in one, by who asks, so that each of them can name what it needs and no more.

Each verb is one atomic operation: it happens whole or not at all, and when it returns, what it wrote survives the loss
of the process and of power (`memory` aside). No verb ever waits for a worker, and no transaction is held across user
code.

Time is the store's own. Verbs take spans, never instants: the one clock that decides leases, expiry and timestamps
belongs to the backend (a database's clock where several machines share it), and a test passes its own to the
constructor.

Writes of a worker carry its `Claim`; the fence in it must still hold, else the verb raises `LeaseLost` and changes
nothing.

A value that has no JSON form makes the verb that would store it raise `NotStorable`, and so does text that UTF-8 can't
carry or, outside of JSON values, with a null in it; nothing is changed then. What a verb returns is the caller's own:
changing it changes nothing that is stored.

Where values are sealed at rest, a verb that reads one may raise `Unreadable`: this process lacks the key, or the value
is not what was sealed; so may one that meets what was damaged. It is never served, and nothing is changed then. Where a
verb tells of many tasks, one that can't be read is left out; where it takes their runs from workers, such a run is put
off by `PUT_OFF`, with no attempt and no death more. A status message that can't be opened is none of that: other words
stand in its place, and it stays as it is stored.

Every verb may raise `StoreUnavailable`: nothing was changed, or the outcome is unknown to the caller and the verb is
safe to call again. A verb that is cancelled while it waits may still happen. The store says in the log when that
begins and when it is over, so that its callers, who try again and again, need not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from perdure.domain.journal import Entry, EntryState, Journal, Waits
from perdure.domain.model import (
    JSON,
    Change,
    Claim,
    Demand,
    InputRequest,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Renewal,
    Session,
    Task,
)

from .operators import Operators

__all__ = [
    "PROMOTED",
    "PUT_OFF",
    "Clients",
    "Housekeeping",
    "Listener",
    "Operators",
    "Outsiders",
    "Store",
    "Unsubscribe",
    "Workers",
]

PROMOTED: Final = 500
"""How many timers one `claim` makes due at most, so that a crowd of them is no long transaction."""

PUT_OFF: Final = 60_000
"""Milliseconds after which a run that could not be read is tried again, perhaps by a process that has the key."""

Listener = Callable[[Change | None], None]
"""Called on the event loop after a change was committed. Must not block or raise.

None instead of a change: there may have been some that nobody was told of (the connection over which another process
tells of its own was down for a while), so whoever waits for any has to look.
"""

Unsubscribe = Callable[[], None]


class Clients(Protocol):
    """What clients ask: tasks made, found again, answered and cancelled."""

    async def create(self, new: NewTask) -> Task:
        """Make a task, runnable at once. When this returns, `get` resolves the id on any replica (contract 2).

        An id that stands there already is this owner's task from an earlier call, and is returned as it is now. So is
        the task that the owner created under the same idempotency key (`new.key`), whatever its id.

        Raises:
            TaskNotFound: the id is somebody else's. Ids are minted at random, so this means a broken source.
            IdempotencyKeyReused: the key stands for another call: the digests differ.
        """
        ...

    async def recall(self, owner: Owner, key: str, digest: str) -> Task | None:
        """The task that the owner created under an idempotency key, as it is now; None if there is none.

        Raises:
            IdempotencyKeyReused: the key stands for another call.
        """
        ...

    async def get(self, owner: Owner, task_id: str) -> Task:
        """The task as it is now, with its outstanding inputs. Every poll asks this; what was ordered is not part of it.

        Raises:
            TaskNotFound: no such task for this owner.
            TaskExpired: it was this owner's and was purged a while ago.
        """
        ...

    async def open_questions(self, owner: Owner, task_id: str) -> tuple[InputRequest, ...]:
        """The questions that may be answered now, in the order of asking.

        More than the `inputs` of `get`: a task that something else has woken is `working` while its questions are open,
        and one may wait for others than those that it asked before. None of a terminal task.

        Raises:
            TaskNotFound, TaskExpired: as `get`.
        """
        ...

    async def answer(self, owner: Owner, task_id: str, responses: Mapping[str, JSON]) -> Task:
        """Record answers to outstanding questions.

        Whatever else is in `responses` is ignored, as is all of it on a terminal task. The first answer to a key wins,
        across replicas. With the last one that the run waits for, an `input_required` task is `working` again and
        runnable. A task that is `working`, since something else has woken it while questions were open, takes answers
        just as well; and so does one for questions that its run has left behind (`InputRequest.awaited`).

        Raises:
            TaskNotFound, TaskExpired: as `get`.
        """
        ...

    async def request_cancel(self, owner: Owner, task_id: str) -> Task:
        """Ask the task to stop.

        Nobody is running it: `cancelled` at once, unless its code minds; then it is made runnable, with the intent.
        Somebody is: the intent is stored and passed on. Idempotent; a terminal task stays as it is. The first request
        becomes an event of the timeline.

        Code minds from when it recorded external work that is to be told (`Entry.minds_cancel`), and from then on as it
        said when it was last put aside (`Waits.minds_cancel`): also while the run is held, waits for another attempt,
        was given back or lost its worker.

        Raises:
            TaskNotFound, TaskExpired: as `get`.
        """
        ...

    async def changed(self, known: Mapping[str, int], owner: Owner | None = None) -> Mapping[str, Task | None]:
        """Of the tasks that `known` names, with a version each: those of another version, as they are now.

        They say how the tasks stand, as in `page`. None for one that is gone, never was, or is another owner's than
        `owner`; without one they are told whoever's they are, and it is the caller who makes sure that they may be
        shown. What has not changed, or is another owner's, costs no more than a look at its version.
        """
        ...

    def commits_by_others(self) -> int | None:
        """A number that becomes another one after somebody else has committed; what this store commits is nobody's.

        None where `subscribe` tells of what others commit. Cheap enough to be asked for a hundred times a second on the
        event loop. A commit shows soon, not at once, however many there were; and the number may change for nothing.
        """
        ...

    async def page(self, owner: Owner, after: int | None, limit: int) -> tuple[Task, ...]:
        """Up to `limit` of the owner's tasks, the newest first; only those of a smaller number (`seq`) than `after`.

        They say how the tasks stand. Results, errors and questions, each of which may be a mebibyte, are left out.
        """
        ...


class Workers(Protocol):
    """What workers ask: leases, claims, and what they write under the fence of a claim."""

    async def open_session(self, lease_ms: int, info: JSONObject) -> Session:
        """Begin a lease of `lease_ms`. `info` is what neighbours may know of the process."""
        ...

    async def renew(self, session_id: str, lease_ms: int) -> Renewal:
        """Prolong the lease to `lease_ms` from now.

        Raises:
            LeaseLost: it lapsed and was taken over; none of its claims holds any more.
        """
        ...

    async def give_back(self, session_id: str, held: frozenset[tuple[int, int]]) -> int:
        """Give back (`release`) those of these runs that the session still holds under that fence; how many.

        `held`: as in `Renewal`. For what a store has lost: a worker was told that its write is kept, and then the
        database was put back to what it had been before.
        """
        ...

    async def close_session(self, session_id: str) -> None:
        """End the lease; whatever it still holds is given back (`release`)."""
        ...

    async def sessions(self) -> tuple[tuple[Session, bool], ...]:
        """All sessions, each with whether its lease has lapsed."""
        ...

    async def take_over(self, gone: Collection[str] = (), *, keep: Collection[str] = ()) -> int:
        """Free the runs of all lapsed sessions and of those in `gone`, whose processes are known to be dead.

        The sessions in `keep` (the caller's own is one) are left alone, lapsed or not. Each freed run counts one death
        more (an event of the timeline, DEATH); at the task's `max_attempts` the task fails (`lifecycle.exhausted`). A
        task that was asked to cancel is `cancelled`, unless its code minds and it may be tried again. Returns how many
        runs were freed or ended. Any number of replicas may call this at once; each run is freed once.
        """
        ...

    async def claim(self, session_id: str, demands: Sequence[Demand], limit: int) -> tuple[Claim, ...]:
        """Up to `limit` due runs of the handlers in `demands`, no more of each than it demands.

        They come in the order of `demands`, which is the caller's order of priority. Within a handler the tenants are
        served in turn, beginning after the one that the demand names and going round in the order of their names, an
        equal share each; within a tenant the run that has been due longest is first. Timers whose instant has come, up
        to `PROMOTED` a call, count as due since then.

        A run whose task can't be opened here (`Unreadable`) is left out, and put off by `PUT_OFF`: its attempts stay as
        they are, and the others are claimed.

        A claimed task is `working`. Questions whose time has run out are superseded by then, each an event of the
        timeline.

        Raises:
            LeaseLost: the session is gone, or its lease has lapsed.
        """
        ...

    async def journal(self, claim: Claim) -> Journal:
        """All entries of the task, and all questions that it ever asked, in the order of asking, with the answers."""
        ...

    async def record(
        self, claim: Claim, entry: Entry, *, wake_in_ms: int | None = None, note: str | None = None
    ) -> Entry:
        """Write an entry into the journal, in place of what stands there; returns it, with the `wake_at` it was given.

        `wake_in_ms`: `wake_at`, from now. `note`: an event of the timeline (STEP_RETRY) that is written along. A failed
        try that is on record already (`journal.repeated`) changes nothing: the caller only never heard that it was.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...

    async def report(self, claim: Claim, message: str) -> None:
        """Show `message` as the task's status message.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...

    async def park(self, claim: Claim, waits: Waits) -> Task:
        """Put the run aside until something that it waits for has come: no lease, no worker, no memory.

        Returns the task as it is then: `input_required` if a question that it waits for is open (whatever else it asked
        before is left behind, and no longer awaited); else `working`, waiting for a time or for work elsewhere, or due
        at once, if something has come already; or `cancelled`, if that was asked for meanwhile, unless its code minds:
        then it is due at once, with the intent. What has come, and when a wait is over by itself, is judged in the same
        transaction, so that an answer or a settlement that arrives at this very moment is not slept through.

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

        A task that was asked to cancel meanwhile is `cancelled` instead, unless its code minds.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...

    async def retry(
        self, claim: Claim, delay_ms: int, note: str, *, failed: Collection[str] = (), counted: bool = True
    ) -> Task:
        """Give the run back after a failed attempt; it is due again in `delay_ms`.

        Counts one failure more, and `note` becomes an event of the timeline (RETRY). Not `counted` is what was no fault
        of the tool's: the attempt stays as it is. `failed` are the places of the
        steps that ended the attempt (several, if they ran side by side): each of these entries and what came after it
        (`journal.undone`) leave the journal; questions among them lose their place and keep their answers. A task that
        was asked to cancel meanwhile is `cancelled` instead; or, if its code minds and was not run for that very
        reason, due at once.

        Raises:
            LeaseLost: the fence no longer holds.
        """
        ...


class Outsiders(Protocol):
    """What other systems say of the work that a task waits for."""

    async def settle(self, task_id: str, place: str, token: str, state: EntryState, value: JSON) -> Task:
        """Write how external work ended (DONE or FAILED), and make a run that is parked on it due at once.

        The first settlement is an event of the timeline; the same again changes nothing.

        Raises:
            TaskNotFound: no such task or work, or the token is another; one answer for all of these.
            AlreadySettled: it ended otherwise before, or its task is over.
        """
        ...

    async def tell(self, task_id: str, place: str, token: str, message: str) -> Task:
        """Show what external work has to say as the task's status message. Ignored while the task asks something.

        Raises:
            TaskNotFound, AlreadySettled: as `settle`; the latter also if it has ended in any way.
        """
        ...


class Housekeeping(Protocol):
    """What nobody asks for and somebody has to do, on any number of replicas at once."""

    async def expire(self, limit: int) -> int:
        """Fail up to `limit` unfinished tasks whose ttl has run out. Returns how many."""
        ...

    async def free_overdue(self, limit: int, *, late_ms: int) -> int:
        """Free up to `limit` runs that are past their deadline by more than `late_ms`, though their worker is alive.

        It should have ended them. As with the runs of a dead worker (`take_over`), with an event OVERRUN. Returns how
        many.
        """
        ...

    async def purge(self, limit: int, *, linger_ms: int, tombstone_ms: int) -> int:
        """Delete up to `limit` finished tasks whose ttl ran out at least `linger_ms` ago, and all that belongs to them.

        Each leaves a tombstone for its owner that lives for `tombstone_ms`; older tombstones go. Returns how many tasks
        were deleted.
        """
        ...


class Store(Clients, Workers, Outsiders, Operators, Housekeeping, Protocol):
    """Durable tasks. One instance serves one process; several processes may share what lies beneath it."""

    async def open(self) -> None:
        """Open for use from the running event loop.

        An embedded store brings its schema up to date here; one that is shared by machines is migrated before.

        Raises:
            StoreUnusable: it can't be used as it stands; one line says why and what to do.
        """
        ...

    async def close(self) -> None:
        """Finish what was begun and release everything. Safe to call twice."""
        ...

    def subscribe(self, listener: Listener) -> Unsubscribe:
        """Call `listener` for every change that this store commits, until the returned function is called.

        Also for what others commit to the same tasks, where there is a way to hear of it; that may come late, several
        changes of one task as one, and none at all.
        """
        ...
