"""How many requests one backend has to deal with at a time, and who comes next.

What is over the limit waits in a line, no longer than its deadline, and no more of them than the line may hold: behind
that there is only *come back later*, since a longer line would be one that nobody's patience lasts for. The places are
given out lane by lane, one each, and a lane is whoever asks: a client that sends a thousand requests at once waits for
its own thousand, and the next one's first goes ahead of them. When the line is full, the lane that has most in it makes
room for one that has less; so one client can't fill the line either.

`Line` decides and knows no event loop; `Gate` waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto

import anyio

from .faults import Overloaded

__all__ = ["Gate", "Line", "State", "Ticket"]


class State(Enum):
    """What has become of a request at the gate."""

    WAITS = auto()
    IN = auto()
    OUT = auto()


@dataclass(slots=True, eq=False)
class Ticket:
    """One request. `changed` is called when it is let in or turned out while it waits. `waited`: it had to."""

    lane: Hashable
    state: State = State.WAITS
    waited: bool = False
    changed: Callable[[], None] = field(default=lambda: None)


class Line:
    """`limit` requests are in at a time, `room` wait."""

    def __init__(self, limit: int, room: int) -> None:
        self._limit = limit
        self._room = room
        self._inside = 0
        self._waiting = 0
        self._lanes: OrderedDict[Hashable, OrderedDict[Ticket, None]] = OrderedDict()

    @property
    def inside(self) -> int:
        """Requests that are in."""
        return self._inside

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return self._waiting

    def enter(self, lane: Hashable) -> Ticket:
        """A ticket for one more request: it is in, it waits, or it is out since there is no room."""
        ticket = Ticket(lane)
        if self._inside < self._limit:  # then nobody waits: a place that gets free is given on at once
            self._inside += 1
            ticket.state = State.IN
        elif self._waiting < self._room or self._make_room(lane):
            self._lanes.setdefault(lane, OrderedDict())[ticket] = None
            self._waiting += 1
        else:
            ticket.state = State.OUT
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """It is over, or does not want to wait any longer. Harmless when repeated."""
        before, ticket.state = ticket.state, State.OUT
        if before is State.WAITS:
            self._remove(ticket)
        elif before is State.IN:
            self._inside -= 1
            self._call_next()

    def _call_next(self) -> None:
        if not self._lanes:
            return
        lane, tickets = next(iter(self._lanes.items()))
        ticket = next(iter(tickets))
        self._remove(ticket)
        if lane in self._lanes:
            self._lanes.move_to_end(lane)
        self._inside += 1
        ticket.state = State.IN
        ticket.changed()

    def _make_room(self, lane: Hashable) -> bool:
        """Turn out the newest of the longest lane, if that is longer than `lane` would become."""
        if not self._lanes:
            return False
        # Only on a full line, whose length bounds the lanes.
        longest = max(self._lanes.values(), key=len)
        if len(longest) <= len(self._lanes.get(lane, ())) + 1:
            return False
        ticket = next(reversed(longest))
        self._remove(ticket)
        ticket.state = State.OUT
        ticket.changed()
        return True

    def _remove(self, ticket: Ticket) -> None:
        tickets = self._lanes[ticket.lane]
        del tickets[ticket]
        self._waiting -= 1
        if not tickets:
            del self._lanes[ticket.lane]


class Gate:
    """The line before the backend `name`. `patience`: seconds that anybody waits in it at most."""

    def __init__(self, name: str, limit: int, room: int, patience: float) -> None:
        self._name = name
        self._patience = patience
        self.line = Line(limit, room)

    async def enter(self, lane: Hashable, deadline: float) -> Ticket:
        """Be let in. Who is in has to `leave` again. `deadline`: a moment of the event loop's clock.

        Raises:
            Overloaded: there is no room, or there was none in time. Nothing was sent.
        """
        ticket = self.line.enter(lane)
        if ticket.state is State.WAITS:
            ticket.waited = True
            try:
                await self._wait(ticket, deadline)
            except BaseException:
                self.line.leave(ticket)
                raise
        if ticket.state is not State.IN:
            self.line.leave(ticket)
            raise Overloaded(self._name)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the place to the next one. Harmless when repeated."""
        self.line.leave(ticket)

    async def _wait(self, ticket: Ticket, deadline: float) -> None:
        called = anyio.Event()
        ticket.changed = called.set
        with anyio.CancelScope(deadline=min(deadline, anyio.current_time() + self._patience)):
            await called.wait()
