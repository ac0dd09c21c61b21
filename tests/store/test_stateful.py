"""SQLite beside the reference model, under one clock: whatever is asked of both, nobody can tell them apart."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.domain.errors import PerdureError
from perdure.domain.model import JSON, Cancelled, Claim, Completed, Failed, Failure, JSONObject, Outcome, Session
from perdure.store.base import Store
from perdure.store.memory import MemoryStore
from perdure.store.sqlite import SQLiteStore
from tests.store.support import ADA, BOB, LEASE, Changes, VirtualClock, new_task

pytestmark = pytest.mark.timeout(900)  # to run takes seconds; to make a failure small enough to read takes minutes

T = TypeVar("T")

NAMES = ("a", "b")
HANDLERS = [f"tools/call:{name}" for name in NAMES]
KEYS = ("k1", "k2", "k3")
QUESTIONS: list[JSONObject] = [{"message": "one?"}, {"message": "two?"}]
ANSWERS: list[JSON] = [None, 1, "x", {"y": []}]
OUTCOMES: list[Outcome] = [Completed({"ok": [1, None]}), Failed(Failure(-32000, "Broken", {"a": 1})), Cancelled()]

asked = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(QUESTIONS), max_size=3)
responses = st.dictionaries(st.sampled_from((*KEYS, "unknown")), st.sampled_from(ANSWERS), max_size=3)
spans = st.sampled_from([None, 1_000, 20_000])
limits = st.sampled_from([10, 2, 1, 0])
back = st.integers(0, 5)


def recent(items: Sequence[T], back: int) -> T:
    """One of the latest: what happened long ago is seldom still alive, and chance would mostly pick that."""
    return items[-1 - back % len(items)]


class Stores(RuleBasedStateMachine):
    """Each rule asks the same of both and compares the answers; the invariant compares all that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = VirtualClock()
        self.tasks: list[str] = []
        self.claims: list[Claim] = []
        self.sessions: list[tuple[str, str]] = []  # their names in the model and in SQLite
        self.stack = contextlib.ExitStack()

    @initialize()
    def open(self) -> None:
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.model = MemoryStore(self.clock)
        self.sqlite = SQLiteStore(f"sqlite:///{Path(folder) / 'tasks.db'}", self.clock)
        self.heard = (Changes(), Changes())
        for store, changes in zip((self.model, self.sqlite), self.heard, strict=True):
            self.runner.run(store.open())
            self.stack.callback(self.runner.run, store.close())
            store.subscribe(changes)
        self.open_session(LEASE)

    def teardown(self) -> None:
        self.stack.close()

    # -- asking both ---------------------------------------------------------------------------------------------------

    def both(self, verb: Callable[[Store], Awaitable[T]]) -> T | None:
        """What both answer to `verb`, or None if both refuse in the same way."""
        return self.each(lambda store, _: verb(store), lambda answer: answer)

    def each(self, verb: Callable[[Store, int], Awaitable[T]], common: Callable[[T], T]) -> T | None:
        """The same where an answer names sessions: `common` puts it into the model's names."""
        one, other = (self.outcome(verb, store, side) for side, store in enumerate((self.model, self.sqlite)))
        if isinstance(one, PerdureError) or isinstance(other, PerdureError):
            assert (type(one), str(one)) == (type(other), str(other))
            return None
        assert common(other) == one
        return one

    def outcome(self, verb: Callable[[Store, int], Awaitable[T]], store: Store, side: int) -> T | PerdureError:
        async def ask() -> T:
            return await verb(store, side)

        try:
            return self.runner.run(ask())
        except PerdureError as error:
            return error

    # -- what clients ask ----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), ttl_ms=spans, keep_ms=spans, max_attempts=st.integers(1, 2))
    def create(self, name: str, ttl_ms: int | None, keep_ms: int | None, max_attempts: int) -> None:
        new = new_task(name, ttl_ms=ttl_ms, keep_ms=keep_ms, max_attempts=max_attempts)
        self.both(lambda store: store.create(new))
        self.tasks.append(new.id)

    @precondition(lambda self: self.tasks)
    @rule(back=back, responses=responses)
    def answer(self, back: int, responses: dict[str, JSON]) -> None:
        task_id = recent(self.tasks, back)
        self.both(lambda store: store.answer(ADA, task_id, responses))

    @precondition(lambda self: self.tasks)
    @rule(back=back)
    def request_cancel(self, back: int) -> None:
        task_id = recent(self.tasks, back)
        self.both(lambda store: store.request_cancel(ADA, task_id))

    # -- what workers ask ----------------------------------------------------------------------------------------------

    @rule(lease_ms=st.sampled_from([LEASE, 2_000]))
    def open_session(self, lease_ms: int) -> None:
        opened: list[Session] = []

        async def verb(store: Store, _: int) -> Session:
            opened.append(await store.open_session(lease_ms, {"pid": 7}))
            return opened[-1]

        self.each(verb, lambda session: replace(session, id=opened[0].id))
        self.sessions.append((opened[0].id, opened[1].id))

    @rule(back=back)
    def renew(self, back: int) -> None:
        session = recent(self.sessions, back)
        self.each(lambda store, side: store.renew(session[side], LEASE), lambda renewal: renewal)

    @rule(back=back)
    def close_session(self, back: int) -> None:
        session = recent(self.sessions, back)
        self.each(lambda store, side: store.close_session(session[side]), lambda nothing: nothing)

    @rule(gone=st.lists(back, max_size=1))
    def take_over(self, gone: list[int]) -> None:
        dead = [recent(self.sessions, back) for back in gone]
        self.each(lambda store, side: store.take_over([session[side] for session in dead]), lambda count: count)

    @rule(back=back, handlers=st.permutations(HANDLERS) | st.just(HANDLERS[:1]), limit=limits)
    def claim(self, back: int, handlers: Sequence[str], limit: int) -> None:
        session = recent(self.sessions, back)
        claims = self.each(lambda store, side: store.claim(session[side], handlers, limit), lambda claims: claims)
        self.claims += claims or ()

    @precondition(lambda self: self.claims)
    @rule(back=back, message=st.sampled_from(["halfway", "nearly"]))
    def report(self, back: int, message: str) -> None:
        claim = recent(self.claims, back)
        self.both(lambda store: store.report(claim, message))

    @precondition(lambda self: self.claims)
    @rule(back=back, asked=asked)
    def park(self, back: int, asked: dict[str, JSONObject]) -> None:
        claim = recent(self.claims, back)
        self.both(lambda store: store.park(claim, asked))

    @precondition(lambda self: self.claims)
    @rule(back=back, outcome=st.sampled_from(OUTCOMES))
    def finish(self, back: int, outcome: Outcome) -> None:
        claim = recent(self.claims, back)
        self.both(lambda store: store.finish(claim, outcome))

    @precondition(lambda self: self.claims)
    @rule(back=back)
    def release(self, back: int) -> None:
        claim = recent(self.claims, back)
        self.both(lambda store: store.release(claim))

    # -- time and housekeeping -----------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1_000, LEASE]))
    def advance(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(limit=limits)
    def expire(self, limit: int) -> None:
        self.both(lambda store: store.expire(limit))

    @rule(limit=limits, linger_ms=st.sampled_from([0, 1_000]), tombstone_ms=st.sampled_from([500, 10_000]))
    def purge(self, limit: int, linger_ms: int, tombstone_ms: int) -> None:
        self.both(lambda store: store.purge(limit, linger_ms=linger_ms, tombstone_ms=tombstone_ms))

    # -- what can be seen ----------------------------------------------------------------------------------------------

    @invariant()
    def all_that_can_be_seen_is_equal(self) -> None:
        for task_id in self.tasks:
            for owner in (ADA, BOB):
                self.both(lambda store, owner=owner, task_id=task_id: store.get(owner, task_id))
        for claim in self.claims:
            journal = self.both(lambda store, claim=claim: store.journal(claim))
            assert list(journal or ()) == list(self.runner.run(self.sqlite.journal(claim)))
        self.each(lambda store, _: store.sessions(), self.in_the_models_names)

    @invariant()
    def the_same_changes_were_announced_in_the_same_order(self) -> None:
        one, other = self.heard
        assert one.take() == other.take()

    def in_the_models_names(self, sessions: tuple[tuple[Session, bool], ...]) -> tuple[tuple[Session, bool], ...]:
        names = {name: model for model, name in self.sessions}
        order = list(names.values())
        named = [(replace(session, id=names[session.id]), lapsed) for session, lapsed in sessions]
        return tuple(sorted(named, key=lambda pair: order.index(pair[0].id)))


TestStores = Stores.TestCase
# Half the examples of other tests: each one here is a history, in a file of its own.
TestStores.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=30)
