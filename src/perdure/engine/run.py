"""One run of one task: the verbs that the work may use, over the journal and under the fence.

Asking is how a task waits without costing anything. `ask` looks into the journal; if the answers are there it returns
them, and if not it notes the questions and raises `Parked`, which unwinds the work. The worker then stores the
questions and forgets the task. When the last answer is in, some worker runs the work again from its start, and the same
`ask` returns what was recorded. So code before a question runs again with each answer, and must be safe to.

A store that is unavailable for a while is no concern of the work's: the verbs wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from perdure.domain import inputs
from perdure.domain.errors import InputKeyReused
from perdure.domain.inputs import Journal
from perdure.domain.model import JSON, Claim, JSONObject
from perdure.store.base import Store

from . import patience

__all__ = ["Parked", "Run", "Stop"]


class Parked(BaseException):
    """Unwinds work that can't go on without answers.

    A `BaseException`, so that `except Exception` in a tool does not swallow it; whoever swallows it all the same parks
    too, since the worker looks at what was asked and not at how the work ended.
    """


class Stop(Enum):
    """Why a run is to stop."""

    CANCEL = "somebody asked the task to stop"
    SHUTDOWN = "the worker is shutting down; another one will run the task"
    LOST = "the lease is lost, or the task is over: nothing that this run does counts any more"


class Run:
    """What the work sees of its task. Used from the event loop only."""

    def __init__(self, store: Store, claim: Claim) -> None:
        self._store = store
        self._journal: Journal | None = None
        self.claim = claim
        self.asked: dict[str, JSONObject] = {}
        """The questions that this run could not go on without."""
        self.clash: InputKeyReused | None = None
        """Two of them under one key: a bug of the work's, which fails the task instead of parking it."""
        self.stop: Stop | None = None
        """Set once somebody wants the run to stop. The first reason counts, but for LOST, which overrides any."""
        self.cancelled = False
        """Whether somebody asked the task to stop. How the work then ends decides how the task does."""

    def end(self, why: Stop) -> None:
        """Note that the run is to end. Later reasons override earlier ones, but a task that was cancelled stays so."""
        self.stop = why
        self.cancelled = self.cancelled or why is Stop.CANCEL

    @property
    def stopping(self) -> bool:
        """Whether this run is to end, for whatever reason."""
        return self.stop is not None

    async def report(self, message: str) -> None:
        """Show `message` as the task's status message.

        Raises:
            LeaseLost: this run no longer counts.
            NotStorable: the message is no valid Unicode.
        """
        await patience.persist(lambda: self._store.report(self.claim, message))

    async def ask(self, asked: Mapping[str, JSONObject]) -> dict[str, JSON]:
        """The answers to `asked` (key -> request), all of them.

        Raises:
            Parked: some are missing. Let it pass.
            InputKeyReused: a key stands for another question already.
        """
        if self._journal is None:
            self._journal = await patience.persist(lambda: self._store.journal(self.claim))
        inputs.admit(self._journal, asked, now=0)
        answers = inputs.answers(self._journal, asked)
        if answers is not None:
            return answers
        for key, request in asked.items():
            if self.asked.setdefault(key, request) != request:
                # Noted, since it may get lost on its way out: of two coroutines side by side that both ask, the one
                # that came first parks, and only its exception is heard of.
                self.clash = InputKeyReused(key)
                raise self.clash
        raise Parked
