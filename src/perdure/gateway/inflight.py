"""The requests that are under way: in memory, gone with the process, and no authority on any task.

A client ends a request of its own by closing the response, or by `notifications/cancelled` with its id. Ids are chosen
by clients, and each of them begins at 1. So a notification ends a request only if it comes from the same owner at the
same address, and only if there is just one of that id: else it could end somebody else's. What is ended is the request
to the backend. A task is ended by `tasks/cancel` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from perdure.domain.model import Owner

__all__ = ["Caller", "InFlight", "Pending"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who has sent a request: its owner, and the address that the connection came from."""

    owner: Owner
    address: str


@dataclass(eq=False, slots=True)
class Pending:
    """One request. `backend`: whom it was sent on to, once that is known.

    `told`: its client wants no answer. `cut_off`: the gateway ends.
    """

    caller: Caller
    id: int | str
    scope: anyio.CancelScope
    backend: str | None = None
    told: bool = False
    cut_off: bool = False


class InFlight:
    """All requests of one gateway."""

    def __init__(self) -> None:
        self._pending: dict[tuple[Caller, int | str], set[Pending]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._pending.values()))

    def begin(self, caller: Caller, id: int | str, scope: anyio.CancelScope) -> Pending:
        """One more is under way, until it is `over`."""
        pending = Pending(caller, id, scope)
        self._pending.setdefault((caller, id), set()).add(pending)
        return pending

    def over(self, pending: Pending) -> None:
        """It is under way no longer."""
        key = (pending.caller, pending.id)
        several = self._pending[key]
        several.discard(pending)
        if not several:
            del self._pending[key]

    def end(self) -> None:
        """End all of them: the gateway has no more time for them."""
        for several in [*self._pending.values()]:
            for pending in several:
                pending.cut_off = True
                pending.scope.cancel()

    def cancel(self, caller: Caller, id: object) -> bool:
        """End the request of that id, if there is just one. False: there was none, or it can't be told which."""
        if not isinstance(id, int | str) or isinstance(id, bool):
            return False
        several = self._pending.get((caller, id), set())
        if len(several) != 1:
            return False
        (pending,) = several
        pending.told = True
        pending.scope.cancel()
        return True
