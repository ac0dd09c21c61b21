"""Two stores side by side, under one clock: whatever is asked of both, nobody can tell them apart."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from perdure.domain.errors import PerdureError, TaskNotFound
from perdure.domain.journal import Entry, EntryState, Verb, Waits
from perdure.domain.model import (
    JSON,
    Asked,
    Cancelled,
    Claim,
    Completed,
    Demand,
    Failed,
    Failure,
    JSONObject,
    NewTask,
    Outcome,
    Owner,
    Session,
    Status,
)
from perdure.domain.operating import Listing, Which
from perdure.domain.timeline import Inspection, RunState
from perdure.store.base import Store
from perdure.store.keys import KeyRing
from perdure.store.memory import MemoryStore
from perdure.store.sealing import CLEAR, Codec, codec_for
from perdure.store.sqlite import SQLiteStore
from tests.store.sealed import OLD
from tests.store.support import ADA, ELSEWHERE, LEASE, TOKEN, Changes, VirtualClock, new_task

T = TypeVar("T")

MEMORY = Path("/dev/shm")
"""Thousands of commits, and none has to outlive the machine: where there is a disk in memory, they need not wait."""
NAMES = ("a", "b")
HANDLERS = [f"tools/call:{name}" for name in NAMES]
EVERYTHING = [Demand(handler, 10) for handler in HANDLERS]
KEYS = ("k1", "k2", "k3")
PLACES = ("0", "1", "2.0/0", "3")
QUESTIONS: list[JSONObject] = [{"message": "one?"}, {"message": "two?"}]
VALUES: list[JSON] = [None, 1, "x", {"y": []}]
OUTCOMES: list[Outcome] = [Completed({"ok": [1, None]}), Failed(Failure(-32000, "Broken", {"a": 1})), Cancelled()]

FILTERS = (
    Which(),
    Which(frozenset({Status.WORKING, Status.INPUT_REQUIRED}), name="a"),
    Which(frozenset({Status.FAILED, Status.CANCELLED, Status.COMPLETED}), tenant="acme", unchanged_ms=1_000),
    Which(older_ms=1_000, newer_ms=20_000, principal="ada"),
)

# -- what is asked for -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One verb with what follows its first arguments."""

    verb: str
    args: tuple[Any, ...]
    named: dict[str, Any]

    async def of(self, store: Store, *first: object) -> Any:
        return await getattr(store, self.verb)(*first, *self.args, **self.named)


def calls(verb: str, *args: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    return st.builds(Call, st.just(verb), st.tuples(*args), st.fixed_dictionaries(named))


def any_of(*weighted: tuple[int, st.SearchStrategy[Call]]) -> st.SearchStrategy[Call]:
    """One of them, by weight."""
    return st.sampled_from([each for weight, each in weighted for _ in range(weight)]).flatmap(lambda each: each)


spans = st.sampled_from([None, 1_000, 20_000])
delays = st.sampled_from([0, 1_000])
passing = st.sampled_from([0] * 8 + [1, 1_000, 1_000, 20_000, LEASE])
limits = st.sampled_from([10, 2, 1, 0])
back = st.sampled_from([0, 0, 0, 1, 2, 5])
"""How far back to reach: what happened long ago is seldom still alive."""
owners = st.sampled_from([ADA, ELSEWHERE])
keys = st.sampled_from(["one", "other"])
digests = st.sampled_from(["d", "e"])
tenants = st.sampled_from([None, "acme", "other", "zoo"])
places, works = st.sampled_from(PLACES), st.sampled_from(PLACES[:2])
states, values = st.sampled_from(EntryState), st.sampled_from(VALUES)
ends = st.sampled_from([EntryState.DONE, EntryState.FAILED])
tokens = st.sampled_from([TOKEN, TOKEN, "forged"])

steps = st.builds(Entry, places, st.just(Verb.STEP), st.just("step"), states, values)
sleeps = st.builds(Entry, places, st.just(Verb.SLEEP), st.just(""), st.just(EntryState.STARTED))
externals = st.builds(
    Entry,
    works,
    st.just(Verb.EXTERNAL),
    st.just("work"),
    st.just(EntryState.STARTED),
    st.sampled_from([{"token": TOKEN}, {"token": TOKEN, "tell": True}]),
)
asked = st.builds(Asked, st.sampled_from(QUESTIONS), places | st.none(), spans)


def waiting_for(asked: dict[str, Asked], begun: list[tuple[Entry, int | None]], more: set[str], minds: bool) -> Waits:
    """Waits mostly name what they begin."""
    return Waits(asked, tuple(begun), frozenset(more | {entry.place for entry, _ in begun}), minds)


waits = st.builds(
    waiting_for,
    st.dictionaries(st.sampled_from(KEYS), asked, max_size=2),
    st.lists(st.tuples(externals | externals | sleeps, spans), max_size=2),
    st.sets(places, max_size=1),
    st.booleans(),
)
demands = st.permutations(HANDLERS).flatmap(
    lambda handlers: st.tuples(*(st.builds(Demand, st.just(handler), limits, tenants) for handler in handlers))
)

# Weighted, so that much happens: many parks and many things that end them, and few ends. Left to itself, chance spends
# its steps on tasks that nobody has claimed.
writes = any_of(
    (6, calls("park", waits)),
    (3, calls("record", steps | externals, wake_in_ms=spans, note=st.sampled_from([None, "again"]))),
    (2, calls("retry", delays, st.just("no"), failed=st.lists(places, max_size=2), counted=st.booleans())),
    (1, calls("finish", st.sampled_from(OUTCOMES))),
    (1, calls("release")),
    (1, calls("report", st.sampled_from(["halfway", "nearly"]))),
    (1, calls("journal")),
)
of_owners = any_of(
    (3, calls("answer", st.dictionaries(st.sampled_from((*KEYS, "unknown")), values, min_size=1, max_size=4))),
    (1, calls("request_cancel")),
    (1, calls("get")),
    (1, calls("hasten")),
)
of_strangers = any_of(
    (3, calls("settle", tokens, ends, st.sampled_from(VALUES[:2]))),
    (1, calls("tell", tokens, st.just("half way"))),
)
of_the_house = any_of(
    (1, calls("expire", limits)),
    (1, calls("free_overdue", limits, late_ms=st.sampled_from([0, 1_000]))),
    (1, calls("purge", limits, linger_ms=st.sampled_from([0, 1_000]), tombstone_ms=st.sampled_from([500, 10_000]))),
    (1, calls("discard", st.integers(0, 3), tombstone_ms=st.sampled_from([500, 10_000]))),
)
of_sessions = any_of(
    (2, calls("open_session", st.sampled_from([100 * LEASE, LEASE, 2_000]))),
    (2, calls("take_over", st.booleans())),
    (1, calls("renew", st.just(LEASE))),
    (1, calls("give_back", st.integers(0, 3))),
    (1, calls("close_session")),
)
new_tasks = calls(
    "create",
    st.sampled_from(NAMES),
    owners,
    ttl_ms=spans,
    keep_ms=spans,
    timeout_ms=spans,
    max_attempts=st.integers(1, 2),
    key=st.none() | keys,
    digest=digests,
)
moves = any_of(
    (10, writes),
    (4, calls("claim", demands, limits)),
    (3, new_tasks),
    (4, of_owners),
    (4, of_strangers),
    (3, of_the_house),
    (2, of_sessions),
    (1, calls("create_again", keys, digests)),
    (1, calls("recall", owners, keys, digests)),
)


def recent(items: Sequence[T], back: int) -> T:
    """One of the latest: what happened long ago is seldom still alive, and chance would mostly pick that."""
    return items[-1 - back % len(items)]


class Stores(RuleBasedStateMachine):
    """Each move asks the same of both and compares the answers; the invariants compare all that can be seen.

    By default SQLite beside the reference model, with its values sealed, which nobody can tell either. `latest`: how
    many tasks are compared after each move, besides one of the others; `every`: after how many moves all else is.
    """

    latest = 3
    every = 1

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.tasks: list[tuple[str, Owner]] = []
        self.claims: list[Claim] = []
        self.steps = 0
        self.number = 0  # of the latest task
        self.sessions: list[tuple[str, str]] = []  # their names in the model and in the other
        self.stack = contextlib.ExitStack()

    @initialize()
    def open(self) -> None:
        # Not `Runner.run`, which sets up a signal handler each time, at a third of the cost of all that is done here.
        self.run = self.stack.enter_context(asyncio.Runner()).get_loop().run_until_complete
        self.model, self.other = self.stores()
        self.heard = (Changes(), Changes())
        for store, changes in zip((self.model, self.other), self.heard, strict=True):
            self.run(store.open())
            self.stack.callback(self.close, store)
            store.subscribe(changes)
        self.open_session(100 * LEASE)
        self.create("a", ADA)

    def stores(self) -> tuple[Store, Store]:
        """The two, of which the first is the model."""
        return MemoryStore(self.clock), self.on_sqlite(codec_for(KeyRing(OLD)))

    def on_sqlite(self, codec: Codec = CLEAR) -> Store:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None))
        return SQLiteStore(f"sqlite:///{Path(folder) / 'tasks.db'}", self.clock, codec=codec)

    def level(self) -> None:
        """Before tasks and fences are numbered, in a store that leaves out numbers where the model does not."""

    def close(self, store: Store) -> None:
        self.run(store.close())

    def teardown(self) -> None:
        self.stack.close()

    # -- asking both ---------------------------------------------------------------------------------------------------

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | None:
        """What both answer to `verb`, or None if both refuse in the same way."""
        return self.each(lambda store, _: verb(store), lambda answer: answer)

    def each(self, verb: Callable[[Store, int], Awaitable[T]], common: Callable[[T], T]) -> T | None:
        """The same where an answer names sessions: `common` puts it into the model's names."""
        one, other = (self.outcome(verb, store, side) for side, store in enumerate((self.model, self.other)))
        if isinstance(one, PerdureError) or isinstance(other, PerdureError):
            assert (type(one), str(one)) == (type(other), str(other))
            return None
        assert common(other) == one
        return one

    def outcome(self, verb: Callable[[Store, int], Awaitable[T]], store: Store, side: int) -> T | PerdureError:
        async def ask() -> T:
            return await verb(store, side)

        try:
            return self.run(ask())
        except PerdureError as error:
            return error

    # -- the moves -----------------------------------------------------------------------------------------------------

    @rule(ms=passing, call=moves, back=back, stale=st.sampled_from([False] * 5 + [True]))
    def move(self, ms: int, call: Call, back: int, stale: bool) -> None:
        self.clock.advance(ms)
        task_id, owner = recent(self.tasks, back)
        match call.verb:
            case "create" | "create_again" | "open_session":
                getattr(self, call.verb)(*call.args, **call.named)
            case "claim" | "take_over" | "renew" | "give_back" | "close_session":
                getattr(self, call.verb)(recent(self.sessions, back), call)
            case "get" | "answer" | "request_cancel":
                self.both(lambda store: call.of(store, owner, task_id))
            case "hasten":
                self.both(lambda store: call.of(store, task_id))
            case "discard":
                self.discard(call)
            case "settle" | "tell":
                work = recent(self.works() or [(task_id, "0")], back)
                self.both(lambda store: call.of(store, *work))
            case "recall" | "expire" | "free_overdue" | "purge":
                self.both(call.of)
            case _:
                self.write(call, back, stale=stale)

    def create(self, name: str, owner: Owner, **options: Any) -> None:
        new = new_task(name, owner=owner, **options)
        self.make(new)
        self.tasks.append((new.id, owner))

    def create_again(self, key: str, digest: str) -> None:
        """Under an id that stands there already, or did.

        With a key: without one the two would number their tasks differently from then on, as they may.
        """
        task_id, owner = self.tasks[-1]
        new = replace(new_task("a", owner=owner, key=key, digest=digest), id=task_id)
        self.make(new)

    def make(self, new: NewTask) -> None:
        self.level()
        task = self.both(lambda store: store.create(new))
        self.number = max(self.number, 0 if task is None else task.seq)

    def open_session(self, lease_ms: int) -> None:
        opened: list[Session] = []

        async def verb(store: Store, _: int) -> Session:
            opened.append(await store.open_session(lease_ms, {"pid": 7}))
            return opened[-1]

        self.each(verb, lambda session: replace(session, id=opened[0].id))
        self.sessions.append((opened[0].id, opened[1].id))

    def renew(self, session: tuple[str, str], call: Call) -> None:
        self.each(lambda store, side: call.of(store, session[side]), lambda answer: answer)

    close_session = renew

    def give_back(self, session: tuple[str, str], call: Call) -> None:
        """Some of the latest claims, whoever's they are and whether they hold or not."""
        (count,) = call.args
        held = frozenset((claim.seq, claim.fence) for claim in self.claims[len(self.claims) - count :])
        self.each(lambda store, side: store.give_back(session[side], held), lambda count: count)

    def discard(self, call: Call) -> None:
        """Some of the latest tasks, of which those that are unfinished stay."""
        (count,) = call.args
        latest = [task_id for task_id, _ in self.tasks[len(self.tasks) - count :]]
        self.both(lambda store: store.discard(latest, **call.named))

    def take_over(self, session: tuple[str, str], call: Call) -> None:
        (known_to_be_dead,) = call.args
        gone = [session] if known_to_be_dead else []
        self.each(lambda store, side: store.take_over([each[side] for each in gone]), lambda count: count)

    def claim(self, session: tuple[str, str], call: Call) -> None:
        self.level()
        claims = self.each(
            lambda store, side: call.of(store, session[side]),
            lambda claims: tuple(replace(claim, session=session[0]) for claim in claims),
        )
        self.claims += claims or ()

    def write(self, call: Call, back: int, *, stale: bool) -> None:
        """Under a claim that holds, most often."""
        held = self.held()
        if not held and not stale:
            self.claim(recent(self.sessions, back), Call("claim", (EVERYTHING, 10), {}))
            held = self.held()
        claims = self.claims if stale else held
        if claims:
            claim = recent(claims, back)
            session = (claim.session, dict(self.sessions)[claim.session])
            self.each(lambda store, side: call.of(store, replace(claim, session=session[side])), lambda answer: answer)

    def works(self) -> list[tuple[str, str]]:
        """The work elsewhere that is on record, by task and place."""
        records = [(task_id, self.run(self.record_of(task_id))) for task_id, _ in self.tasks]
        entries = [(task_id, entry) for task_id, known in records if known for entry in known.journal.entries.values()]
        return [(task_id, entry.place) for task_id, entry in entries if entry.verb is Verb.EXTERNAL]

    def held(self) -> list[Claim]:
        """The claims that still hold."""
        return [claim for claim in self.claims if self.holds(claim)]

    def holds(self, claim: Claim) -> bool:
        known = self.run(self.record_of(claim.task.id))
        run = known and known.run
        return run is not None and run.session is not None and run.fence == claim.fence

    async def record_of(self, task_id: str) -> Inspection | None:
        try:
            return await self.model.inspect(task_id)
        except TaskNotFound:
            return None

    # -- what can be seen ----------------------------------------------------------------------------------------------

    @invariant()
    def all_that_can_be_seen_is_equal(self) -> None:
        # The latest, of which most is asked, and of the others one at a time.
        self.steps += 1
        self.compare([*self.tasks[-self.latest :], self.tasks[self.steps % len(self.tasks)]])
        if self.steps % self.every:
            return
        self.each(self.sessions_of, lambda sessions: sessions)
        self.both(lambda store: store.loads())
        self.both(lambda store: store.backlog(1_000))
        self.both(lambda store: store.backlog(2, "acme"))
        self.both(lambda store: store.unfinished(ADA, 1_000))
        self.both(lambda store: store.page(ADA, None, 2))
        self.both(lambda store: store.page(ADA, self.steps % (self.number + 2), 10))
        for which in FILTERS:
            self.each(lambda store, _, which=which: store.browse(which, None, 4), self.listing)
        self.each(lambda store, _: store.browse(FILTERS[0], self.steps % (self.number + 2), 10), self.listing)
        self.both(lambda store: store.tally(None, 1_000))
        # At their second version tasks begin to differ from each other.
        self.both(lambda store: store.changed({task_id: 2 for task_id, _ in self.tasks}))
        self.both(lambda store: store.changed({task_id: 2 for task_id, _ in self.tasks}, ADA))

    def compare(self, tasks: Sequence[tuple[str, Owner]]) -> None:
        for task_id, owner in tasks:
            seen = self.each(lambda store, _, task_id=task_id: self.look(store, task_id), self.inspected)
            if seen is None:
                self.both(lambda store, owner=owner, task_id=task_id: store.get(owner, task_id))

    @invariant()
    def the_same_changes_were_announced_in_the_same_order(self) -> None:
        one, other = self.heard
        assert one.take() == other.take()

    async def look(self, store: Store, task_id: str) -> tuple[Inspection, list[str]]:
        """Everything about a task, and the order in which it asked, of which mappings that are equal may differ."""
        inspection = await store.inspect(task_id)
        return inspection, list(inspection.journal.questions)

    def listing(self, seen: Listing) -> Listing:
        return replace(seen, tasks=tuple(replace(each, run=self.in_model(each.run)) for each in seen.tasks))

    def inspected(self, seen: tuple[Inspection, list[str]]) -> tuple[Inspection, list[str]]:
        inspection, order = seen
        return replace(inspection, run=self.in_model(inspection.run)), order

    def in_model(self, run: RunState | None) -> RunState | None:
        names = {name: model for model, name in self.sessions}
        return run if run is None or run.session is None else replace(run, session=names[run.session])

    async def sessions_of(self, store: Store, side: int) -> list[tuple[Session, bool]]:
        """In the model's names and in their order."""
        names = {pair[side]: pair[0] for pair in self.sessions}
        named = [(replace(session, id=names[session.id]), lapsed) for session, lapsed in await store.sessions()]
        return sorted(named, key=lambda pair: pair[0].id)
