"""The driver: what the plan says is done to the processes, to their clocks, and to what lies beneath their store.

A fault counts when it was felt: the process was there to be killed, the disk refused a write, a connection broke. What
was inflicted and felt by nobody is reported apart, so that a quiet storm can't pass for a survived one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .interposer import Interposer, felt
from .plan import FLEET, OF_THE_CLOCK, Fault, Inflicted, Kind, Share
from .processes import Fleet, Seat
from .stores.base import Trouble

__all__ = ["Driver", "possible"]

_OF_A_PROCESS: Final = frozenset({Kind.KILL, Kind.STOP, Kind.TERM})
_EARLY: Final = 0.25
"""How many of the kills hit a process without waiting until it is up."""
_UP_WITHIN: Final = 20.0


def possible(interposer: Interposer | str, troubles: Mapping[str, Trouble]) -> tuple[dict[str, Share], dict[str, str]]:
    """The kinds that can be inflicted here, and why the others can't."""
    missing: dict[str, str] = {kind: trouble.missing for kind, trouble in troubles.items() if trouble.missing}
    if isinstance(interposer, str):
        missing |= dict.fromkeys(sorted(OF_THE_CLOCK), interposer)
    shares = {**FLEET, **{kind: trouble.share for kind, trouble in troubles.items()}}
    return {kind: share for kind, share in shares.items() if kind not in missing}, missing


@dataclass(slots=True)
class Driver:
    """Carries out a plan. `troubles`: the store's own kinds. `now` counts the seconds from the beginning."""

    fleet: Fleet
    interposer: Interposer | None
    troubles: Mapping[str, Trouble]
    now: Callable[[], float]
    inflicted: list[Inflicted] = field(default_factory=list[Inflicted])
    _offset: float = 0.0
    _farthest: float = 0.0
    _clock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def rage(self, faults: Sequence[Fault]) -> None:
        """Inflict them all, each at its time or as soon after it as its victim is to be had."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at - self.now()))
                ready = asyncio.Event()
                group.create_task(self._inflict(fault, ready))
                await ready.wait()

    def heal(self) -> None:
        """All go on. The clock goes to where it was farthest: a timer that is set is due there."""
        for seat in self.fleet.seats:
            seat.send(signal.SIGCONT)
        self._set_clock(self._farthest)

    async def _inflict(self, fault: Fault, ready: asyncio.Event) -> None:
        """`ready` is set once the victim is to be had, so that the next fault may look for one."""
        if fault.kind in _OF_A_PROCESS:
            async with self._victim(fault, ready) as seat:
                at = self.now()
                self._note(fault, at, seat.name, felt=await self._strike(fault, seat))
        elif fault.kind == Kind.BLACKOUT:
            async with contextlib.AsyncExitStack() as stack:
                for seat in self.fleet.seats:
                    await stack.enter_async_context(seat.fault)
                ready.set()
                struck = [seat.end(signal.SIGKILL, fault.span) for seat in self.fleet.seats]
                self._note(fault, self.now(), "all", felt=any(struck))
        elif fault.kind in OF_THE_CLOCK:
            async with self._clock:
                ready.set()
                self._note(fault, self.now(), "all", felt=await self._step_clock(fault.size))
        else:
            trouble = self.troubles[fault.kind]
            async with trouble.turn(fault):
                ready.set()
                at, whom = self.now(), self.fleet.seats[fault.seat].name if trouble.of_a_seat else "all"
                self._note(fault, at, whom, felt=await trouble.inflict(fault))

    def _note(self, fault: Fault, at: float, whom: str, *, felt: bool) -> None:
        self.inflicted.append(Inflicted(fault, at, whom, felt))

    # -- processes -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _victim(self, fault: Fault, ready: asyncio.Event) -> AsyncGenerator[Seat]:
        """The preferred seat, or the next one that is up and that nothing else is done to."""
        seats = self.fleet.seats
        turn = [seats[(fault.seat + step) % len(seats)] for step in range(len(seats))]
        seat = next((seat for seat in turn if not seat.fault.locked() and seat.up.is_set()), turn[0])
        async with seat.fault:
            ready.set()
            if fault.kind != Kind.KILL or fault.size > _EARLY:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_UP_WITHIN):
                        await seat.up.wait()
            yield seat

    async def _strike(self, fault: Fault, seat: Seat) -> bool:
        if fault.kind == Kind.KILL:
            return seat.end(signal.SIGKILL, fault.span)
        if fault.kind == Kind.TERM:
            return await self.fleet.terminate(seat, fault.span)
        return await self._freeze(seat, fault.span)

    async def _freeze(self, seat: Seat, seconds: float) -> bool:
        if not seat.alive:
            return False
        seat.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
            return _is_stopped(seat)
        finally:
            seat.send(signal.SIGCONT)

    # -- their clocks --------------------------------------------------------------------------------------------------

    async def _step_clock(self, seconds: float) -> bool:
        if self.interposer is None:
            return False
        before = self.interposer.read("clock_reads")
        self._set_clock(self._offset + seconds)
        return await felt(self.interposer, "clock_reads", before)

    def _set_clock(self, offset: float) -> None:
        self._offset = offset
        self._farthest = max(self._farthest, offset)
        if self.interposer is not None:
            self.interposer.set("clock_offset_ns", int(offset * 1e9))


def _is_stopped(seat: Seat) -> bool:
    """Whether the kernel says that the process stands still."""
    if seat.process is None:
        return False
    try:
        stat = Path(f"/proc/{seat.process.pid}/stat").read_text(errors="replace")
    except OSError:
        return seat.alive  # no /proc: it was told to, and is there
    return stat.rpartition(")")[2].split()[0] == "T"
