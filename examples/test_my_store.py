"""A store of one's own, and all that Perdure asks of it, tested."""

import pytest

from perdure.domain.model import Claim, Outcome, Task
from perdure.store.clock import Clock
from perdure.store.memory import MemoryStore
from perdure.testing import VirtualClock
from perdure.testing.stores import MakeStore, StoreSuite
from perdure.testing.stores.support import DONE, running


class NotingStore(MemoryStore):
    """Tasks in memory, and a note of each that its worker finished, and when."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.notes: dict[str, int] = {}

    async def finish(self, claim: Claim, outcome: Outcome) -> Task:
        task = await super().finish(claim, outcome)
        self.notes[task.id] = self.clock()
        return task


class TestNotingStore(StoreSuite):
    @pytest.fixture
    def make_store(self) -> MakeStore:
        return NotingStore

    async def test_what_is_finished_is_noted(self, store: NotingStore, clock: VirtualClock) -> None:
        claim = await running(store)
        clock.advance(1_000)
        await store.finish(claim, DONE)
        assert store.notes == {claim.task.id: clock.now}
