"""The fleet: who runs, under which commands, and keeping everybody running.

Each seat is filled again as soon as its process is gone, whatever it died of. Faults only send signals; that a process
which nobody touched goes away by itself is noted here, since that is a bug. The processes are in sessions of their own,
so that a Ctrl-C reaches the driver alone, which then ends them by their ids.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perdure.testing.postgresql.programs import free_port

__all__ = ["SERVER", "WORKER", "Fleet", "Kind", "Seat"]

ROOT: Final = Path(__file__).resolve().parents[1]
PERDURE: Final = Path(sys.executable).with_name("perdure")
UP_WITHIN: Final = 60.0
"""Seconds that a process may take to come up while its world is in order. Generous: the machine may be busy."""
ENDED_WITHIN: Final = 30.0
"""Seconds after SIGTERM: the grace period, open requests, and a store that is locked or slow."""
_IN_ORDER: Final = (0, -signal.SIGTERM)
"""uvicorn raises the signal again once it has shut down in order."""
_PROBE: Final = 0.05
_AGAIN: Final = 0.3
_SHOWN: Final = 25
_REFUSAL: Final = re.compile(r"perdure: (?:/|postgresql://)|perdure\.domain\.errors\.StoreUnusable: ")
"""How the line begins by which a process says that it can't start with the store as it is. The second is uvicorn's."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a process of the fleet is. `command`: the program's arguments, with `{port}` and `{store}` in them.

    `listens`: it is up when it does. Otherwise it is up when it holds a lease. `ours`: how it ends is our affair.
    """

    name: str
    command: tuple[str, ...]
    listens: bool
    program: Path = PERDURE
    ours: bool = True


SERVER: Final = Kind("server", ("serve", "chaos.app:mcp", "--port", "{port}", "--store", "{store}"), listens=True)
WORKER: Final = Kind("worker", ("worker", "chaos.app:mcp", "--store", "{store}"), listens=False)


@dataclass(slots=True, eq=False)
class Seat:
    """A place in the fleet, and the process that fills it now."""

    kind: Kind
    name: str
    port: int
    log: Path
    process: asyncio.subprocess.Process | None = None
    up: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Nobody sits here just now."""
    was_up: bool = False
    """Whether this process ever was."""
    fault: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while something is done to it, so that one fault does not undo another."""
    told: signal.Signals | None = None
    """What its process was sent to end it."""
    logged: int = 0
    """How long its log was when its process began."""
    pause: float = _AGAIN
    """Seconds for which the seat then stays empty."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def end(self, how: signal.Signals, pause: float = _AGAIN) -> bool:
        """Tell the process to end, or make it; whether there was one."""
        if self.process is None or not self.alive:
            return False
        self.told, self.pause = how, pause
        self.up.clear()
        self.send(how)
        return True

    def send(self, what: signal.Signals) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(what)

    def tail(self) -> str:
        """The last that its process wrote."""
        written = self.log.read_bytes()[self.logged :] if self.log.exists() else b""
        return "\n".join(written.decode(errors="replace").splitlines()[-_SHOWN:])


class Fleet:
    """The seats. `environment` is added to each process's own; `wrong` lists ends that nothing explains.

    `url`: how the process of that seat names the store. `leases`: the ids of the processes that have one. `poisoned`
    says of a process that is gone whether a tool was about to kill it.
    """

    def __init__(
        self,
        kinds: list[Kind],
        folder: Path,
        url: Callable[[int], str],
        leases: Callable[[], Awaitable[set[int]]],
        environment: Mapping[str, str],
        poisoned: Callable[[int], bool],
    ) -> None:
        self._url = url
        self._leases = leases
        self._environment = environment
        self._poisoned = poisoned
        self._closing = False
        self._keepers: list[asyncio.Task[None]] = []
        self.seats = [_seat(kind, number, folder) for number, kind in enumerate(kinds)]
        self.wrong: list[str] = []
        self.refusals = 0
        """How often a process said that it can't start as things are."""
        self.starts = 0
        self.poisonings = 0

    @property
    def servers(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.kind.listens]

    def begin(self) -> None:
        self._keepers = [asyncio.create_task(self._keep(seat)) for seat in self.seats]

    async def all_up(self) -> None:
        """Wait until every seat's process is up.

        Raises:
            TimeoutError: one does not come up; its last words are in the message.
        """
        for seat in self.seats:
            try:
                async with asyncio.timeout(UP_WITHIN):
                    await seat.up.wait()
            except TimeoutError:
                raise TimeoutError(f"{seat.name} does not come up:\n{seat.tail()}") from None

    async def terminate(self, seat: Seat, pause: float = _AGAIN) -> bool:
        """SIGTERM; whether there was a process and it ended in time."""
        if not seat.end(signal.SIGTERM, pause):
            return False
        try:
            async with asyncio.timeout(ENDED_WITHIN):
                await seat.gone.wait()
        except TimeoutError:
            seat.send(signal.SIGABRT)  # makes it tell where it hangs
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await seat.gone.wait()
            if seat.kind.ours:
                self.wrong.append(f"{seat.name} did not end within {ENDED_WITHIN:g} s of SIGTERM:\n{seat.tail()}")
            seat.send(signal.SIGKILL)
            return False
        return True

    async def stop(self) -> None:
        """An orderly end for all at once."""
        self._closing = True
        await asyncio.gather(*(self.terminate(seat) for seat in self.seats))

    async def close(self) -> None:
        """Whoever is still there is not any more. Never raises, and may be called at any time."""
        self._closing = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for seat in self.seats:
            if seat.process is not None and seat.alive:
                seat.send(signal.SIGKILL)
                await seat.process.wait()

    # -- one seat ------------------------------------------------------------------------------------------------------

    async def _keep(self, seat: Seat) -> None:
        while not self._closing:
            seat.process = process = await self._start(seat)
            seat.told, seat.pause, seat.was_up = None, _AGAIN, False
            seat.gone.clear()
            coming_up = asyncio.create_task(self._come_up(seat))
            try:
                status = await process.wait()
            finally:
                coming_up.cancel()
            self._judge(seat, process.pid, status)
            seat.up.clear()
            seat.gone.set()
            await asyncio.sleep(seat.pause)

    async def _start(self, seat: Seat) -> asyncio.subprocess.Process:
        store = self._url(self.seats.index(seat)) if "{store}" in seat.kind.command else ""
        arguments = [part.format(port=seat.port, store=store) for part in seat.kind.command]
        self.starts += 1
        with seat.log.open("ab") as sink:
            seat.logged = sink.tell()
            return await asyncio.create_subprocess_exec(
                seat.kind.program,
                *arguments,
                cwd=ROOT,
                env={**os.environ, "PYTHONFAULTHANDLER": "1", **self._environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )

    async def _come_up(self, seat: Seat) -> None:
        while not (_accepts(seat.port) if seat.kind.listens else await self._has_lease(seat)):  # noqa: ASYNC110 - outside
            await asyncio.sleep(_PROBE)
        seat.was_up = True
        if seat.told is None:
            seat.up.set()

    async def _has_lease(self, seat: Seat) -> bool:
        return seat.process is not None and seat.process.pid in await self._leases()

    def _judge(self, seat: Seat, pid: int, status: int) -> None:
        """Whether something was done to the process that explains its end."""
        if status == -signal.SIGKILL and self._poisoned(pid):
            self.poisonings += 1
            return
        if not seat.kind.ours or seat.told is signal.SIGKILL or (seat.told is signal.SIGTERM and status in _IN_ORDER):
            return
        lines = seat.tail().splitlines()
        if seat.told is None and not seat.was_up and status > 0 and any(map(_REFUSAL.match, lines)):
            self.refusals += 1
            return
        sent = "nobody told it to" if seat.told is None else f"it was sent {seat.told.name}"
        when = "after it was up" if seat.was_up else "while it started"
        self.wrong.append(f"{seat.name} ended with status {status} {when}; {sent}:\n{seat.tail()}")


def _seat(kind: Kind, number: int, folder: Path) -> Seat:
    name = f"{kind.name}-{number}"
    return Seat(kind, name, free_port(), folder / f"{name}.log")


def _accepts(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0
