"""What happens to the fleet, and when: a plan that the seed decides, and the driver that carries it out.

A fault counts when it was felt: the process was there to be killed, the disk refused a write, an fsync was late. What
was inflicted and felt by nobody is reported apart, so that a quiet storm can't pass for a survived one.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from enum import StrEnum
from math import exp, log
from pathlib import Path
from typing import Final

from .disk import Disk
from .interposer import Interposer, Knob, Meter
from .processes import Fleet, Seat

__all__ = ["Driver", "Fault", "Inflicted", "Kind", "plan", "possible"]


class Kind(StrEnum):
    """The kinds of faults, in the words of the report."""

    KILL = "SIGKILL"
    BLACKOUT = "SIGKILL, all at once"
    STOP = "SIGSTOP past the lease"
    TERM = "SIGTERM"
    FORWARD = "clock forward"
    BACK = "clock back"
    FULL = "full disk"
    SLOW = "slow fsync"
    BROKEN = "I/O error on fsync"


_WEIGHTS: Final = {
    Kind.KILL: 6,
    Kind.STOP: 4,
    Kind.TERM: 4,
    Kind.BLACKOUT: 1,
    Kind.FORWARD: 2,
    Kind.BACK: 2,
    Kind.FULL: 2,
    Kind.SLOW: 2,
    Kind.BROKEN: 2,
}
_OF_A_PROCESS: Final = frozenset({Kind.KILL, Kind.STOP, Kind.TERM})
_OF_THE_CLOCK: Final = frozenset({Kind.FORWARD, Kind.BACK})
_INTERPOSED: Final = _OF_THE_CLOCK | {Kind.SLOW, Kind.BROKEN}
_FARTHEST: Final = 30.0
"""Seconds that the wall clock may be from the truth."""
_EARLY: Final = 0.25
"""How many of the kills hit a process without waiting until it is up."""
_UP_WITHIN: Final = 20.0
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `at`: seconds from the beginning. `seat`: whom it prefers. `span`: how long it lasts, in seconds.

    `size`: of a clock step, the seconds (signed); of a slow fsync, its delay in seconds; of broken ones, that each
    n-th fails; of a kill, how early it comes (0 to 1).
    """

    at: float
    kind: Kind
    seat: int
    span: float
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Inflicted:
    """A fault that was inflicted at `at` (seconds from the beginning) on `whom`, and whether anybody felt it."""

    fault: Fault
    at: float
    whom: str
    felt: bool


def possible(interposer: Interposer | str, disk: Disk) -> tuple[list[Kind], dict[Kind, str]]:
    """The kinds that can be inflicted here, and why the others can't."""
    missing: dict[Kind, str] = {}
    if isinstance(interposer, str):
        missing = dict.fromkeys(sorted(_INTERPOSED), interposer)
    if disk.missing is not None:
        missing[Kind.FULL] = disk.missing
    return [kind for kind in Kind if kind not in missing], missing


def plan(
    rng: random.Random, count: int, seconds: float, seats: int, lease: float, kinds: Sequence[Kind]
) -> list[Fault]:
    """`count` faults over `seconds`, every one of `kinds` among them if there are enough."""
    deck = _deck(rng, count, kinds)
    pace = seconds / count
    faults: list[Fault] = []
    offset = 0.0
    for number, kind in enumerate(deck):
        at = pace * (number + rng.random())
        if kind in _OF_THE_CLOCK:
            step = _step(rng, offset, forward=kind is Kind.FORWARD)
            offset += step
            faults.append(Fault(at, kind, 0, 0.0, step))
        else:
            span, size = _extent(rng, kind, lease)
            faults.append(Fault(at, kind, rng.randrange(seats), span, size))
    return faults


def _deck(rng: random.Random, count: int, kinds: Sequence[Kind]) -> list[Kind]:
    """`count` kinds in the proportions of their weights, shuffled."""
    total = sum(_WEIGHTS[kind] for kind in kinds)
    deck = [kind for kind in kinds for _ in range(max(1, count * _WEIGHTS[kind] // total))]
    deck += rng.choices(kinds, [_WEIGHTS[kind] for kind in kinds], k=max(0, count - len(deck)))
    rng.shuffle(deck)
    return deck[:count]


def _step(rng: random.Random, offset: float, *, forward: bool) -> float:
    """A step of the clock, most of them small, that does not lead too far away."""
    size = exp(rng.uniform(log(0.2), log(_FARTHEST)))
    sign = 1 if forward else -1
    return sign * (size if abs(offset + sign * size) <= _FARTHEST else rng.uniform(0.2, 2))


def _extent(rng: random.Random, kind: Kind, lease: float) -> tuple[float, float]:
    """Span and size."""
    match kind:
        case Kind.STOP:
            return lease + rng.uniform(0.3, 2), 0.0
        case Kind.FULL:
            return rng.uniform(0.5, 2.5), 0.0
        case Kind.SLOW:
            return rng.uniform(1.5, 3.5), rng.uniform(0.05, 0.6 * lease)
        case Kind.BROKEN:
            return rng.uniform(0.5, 2), rng.randrange(1, 5)
        case _:
            return rng.uniform(0, 1), rng.random()


@dataclass(slots=True)
class Driver:
    """Carries out a plan. `now` counts the seconds from the beginning."""

    fleet: Fleet
    disk: Disk
    interposer: Interposer | None
    store: Path
    now: Callable[[], float]
    inflicted: list[Inflicted] = field(default_factory=list[Inflicted])
    _offset: float = 0.0
    _farthest: float = 0.0
    _clock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _full: asyncio.Lock = field(default_factory=asyncio.Lock)
    _fsync: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def rage(self, faults: Sequence[Fault]) -> None:
        """Inflict them all, each at its time or as soon after it as its victim is to be had."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, fault.at - self.now()))
                ready = asyncio.Event()
                group.create_task(self._inflict(fault, ready))
                await ready.wait()

    def heal(self) -> None:
        """The world is in order again. The clock goes to where it was farthest: a timer that is set is due there."""
        self.disk.free()
        for seat in self.fleet.seats:
            seat.send(signal.SIGCONT)
        if self.interposer is not None:
            self.interposer.set("fsync_delay_us", 0)
            self.interposer.set("fsync_fails_every", 0)
            self._set_clock(self._farthest)

    async def _inflict(self, fault: Fault, ready: asyncio.Event) -> None:
        """`ready` is set once the victim is to be had, so that the next fault may look for one."""
        if fault.kind in _OF_A_PROCESS:
            async with self._victim(fault, ready) as seat:
                at = self.now()
                self._note(fault, at, seat.name, felt=await self._strike(fault, seat))
        elif fault.kind is Kind.BLACKOUT:
            async with contextlib.AsyncExitStack() as stack:
                for seat in self.fleet.seats:
                    await stack.enter_async_context(seat.fault)
                ready.set()
                struck = [seat.end(signal.SIGKILL, fault.span) for seat in self.fleet.seats]
                self._note(fault, self.now(), "all", felt=any(struck))
        else:
            async with self._lock(fault.kind):
                ready.set()
                at = self.now()
                self._note(fault, at, "all", felt=await self._trouble(fault))

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
            if fault.kind is not Kind.KILL or fault.size > _EARLY:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_UP_WITHIN):
                        await seat.up.wait()
            yield seat

    async def _strike(self, fault: Fault, seat: Seat) -> bool:
        match fault.kind:
            case Kind.KILL:
                return seat.end(signal.SIGKILL, fault.span)
            case Kind.TERM:
                return await self.fleet.terminate(seat, fault.span)
            case _:
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

    # -- their world ---------------------------------------------------------------------------------------------------

    def _lock(self, kind: Kind) -> asyncio.Lock:
        """What one fault at a time may turn."""
        if kind is Kind.FULL:
            return self._full
        return self._clock if kind in _OF_THE_CLOCK else self._fsync

    async def _trouble(self, fault: Fault) -> bool:
        match fault.kind:
            case Kind.FULL:
                return await self._fill(fault.span)
            case Kind.SLOW:
                return await self._turn("fsync_delay_us", int(fault.size * 1e6), fault.span, "fsyncs_delayed")
            case Kind.BROKEN:
                return await self._turn("fsync_fails_every", int(fault.size), fault.span, "fsyncs_failed")
            case _:
                before = self._read("clock_reads")
                self._set_clock(self._offset + fault.size)
                return await self._felt("clock_reads", before)

    async def _fill(self, seconds: float) -> bool:
        """A log that is long already is only written over, and would not notice: so it is cut first."""
        await asyncio.to_thread(_truncate_log, self.store)
        before = self._read("writes_refused")
        try:
            await asyncio.to_thread(self.disk.fill)
            await asyncio.sleep(seconds)
            return self.interposer is None or await self._felt("writes_refused", before)
        finally:
            self.disk.free()

    async def _turn(self, knob: Knob, value: int, seconds: float, meter: Meter) -> bool:
        before = self._read(meter)
        try:
            self._set(knob, value)
            await asyncio.sleep(seconds)
            return await self._felt(meter, before)
        finally:
            self._set(knob, 0)

    async def _felt(self, meter: Meter, before: int) -> bool:
        """Whether somebody felt it; for a while longer, if nobody has so far."""
        deadline = self.now() + _PATIENCE
        while self._read(meter) == before and self.now() < deadline:  # noqa: ASYNC110 - by other processes
            await asyncio.sleep(0.1)
        return self._read(meter) > before

    def _set_clock(self, offset: float) -> None:
        self._offset = offset
        self._farthest = max(self._farthest, offset)
        self._set("clock_offset_ns", int(offset * 1e9))

    def _set(self, knob: Knob, value: int) -> None:
        if self.interposer is not None:
            self.interposer.set(knob, value)

    def _read(self, meter: Meter) -> int:
        return 0 if self.interposer is None else self.interposer.read(meter)


def _is_stopped(seat: Seat) -> bool:
    """Whether the kernel says that the process stands still."""
    if seat.process is None:
        return False
    try:
        stat = Path(f"/proc/{seat.process.pid}/stat").read_text(errors="replace")
    except OSError:
        return seat.alive  # no /proc: it was told to, and is there
    return stat.rpartition(")")[2].split()[0] == "T"


def _truncate_log(store: Path) -> None:
    """Move the log into the database and cut it to nothing, if its users let us."""
    with contextlib.suppress(sqlite3.Error), closing(sqlite3.connect(store, timeout=0.5)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
