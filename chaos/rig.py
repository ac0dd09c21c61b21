"""One storm: fleet, clients and faults side by side for a while, then calm, then the verdict.

Whatever happens, at the end there is none of the processes left, what lay beneath the store is taken away, and the
scratch folder is gone.
When the oracle has found something, logs, journal, store and history are kept first.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import effects, faults, load, logs, oracle, report
from .client import Client, connected
from .contractor import Contractor
from .evidence import Evidence
from .faults import Driver
from .interposer import Interposer, interposed
from .plan import OF_THE_CLOCK, Fault, plan
from .processes import SERVER, WORKER, Fleet, Kind
from .stores import GROUNDS
from .stores.base import Ground, Site

__all__ = ["Settings", "run"]

_SETTLED_WITHIN: Final = 90.0
"""Seconds for what is unfinished when the storm ends. The longest tool takes a few seconds."""
_LATE: Final = 1.3
"""How much longer than planned the faults may take on a busy machine."""
_LONGEST: Final = 20.0
"""Seconds that the last fault may take."""
_SAY_EVERY: Final = 15.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What `python -m chaos` was told. `folder`: where the scratch files go. `keep`: where the evidence goes."""

    store: str = "sqlite"
    seconds: float = 600.0
    faults: int = 210  # some of them nobody feels, and those do not count
    servers: int = 2
    workers: int = 2
    rate: float = 3.0
    lease: float = 2.0
    seed: int = 0
    mount: bool = True
    folder: Path | None = None
    keep: Path = Path("build/chaos")

    @property
    def kinds(self) -> list[Kind]:
        """Who takes part."""
        return [SERVER] * self.servers + [WORKER] * self.workers


def run(settings: Settings) -> report.Storm:
    """A whole storm, from nothing to nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos-", dir=settings.folder) as name,
        interposed(Path(name)) as interposer,
        GROUNDS[settings.store](Site(Path(name), interposer, settings.mount, len(settings.kinds))) as ground,
    ):
        rig = _Rig(settings, Path(name), interposer, ground)
        try:
            storm = asyncio.run(rig.storm())
        except Exception:
            rig.keep([])
            raise
        if storm.violations:
            rig.keep(storm.violations)
        return storm


class _Rig:
    def __init__(self, settings: Settings, scratch: Path, interposer: Interposer | str, ground: Ground) -> None:
        self._settings = settings
        self._scratch = scratch
        self._ground = ground
        self._interposer = interposer if isinstance(interposer, Interposer) else None
        self._possible, self._missing = faults.possible(interposer, ground.troubles)
        self._journal = scratch / "journal"
        self._client: Client | None = None
        self._driver: Driver | None = None

    async def storm(self) -> report.Storm:
        settings, started = self._settings, time.monotonic()

        def now() -> float:
            return time.monotonic() - started

        for kind, why in self._missing.items():
            _say(f"left out: {kind}: {why}")
        async with connected(started) as client, self._ground.prepared():
            async with self._fleet() as fleet:
                self._client = client
                bounds = load.Bounds(settings.rate, int(settings.rate * settings.seconds * _LATE))
                clients = load.Load(client, fleet, random.Random(f"{settings.seed} load"), bounds, now)
                others = Contractor(client, fleet, self._journal, random.Random(f"{settings.seed} others"))
                await fleet.all_up()
                _say(f"{len(fleet.seats)} processes are up, the store on {self._ground.kind}")
                await self._ground.audit()
                began = now()
                driver = Driver(fleet, self._interposer, self._ground.troubles, lambda: now() - began)
                self._driver = driver
                planned = self._plan(len(fleet.seats))
                await self._rage(fleet, clients, others, driver, planned)
                await clients.read_all()
                await fleet.stop()
                raged = now() - began
            found = await self._found(client, fleet, driver)
        return report.Storm(
            settings.store,
            settings.seed,
            self._ground.kind,
            raged,
            len(planned),
            driver.inflicted,
            [*self._possible, *self._missing],
            self._missing,
            len(fleet.seats),
            fleet.starts,
            fleet.refusals,
            fleet.poisonings,
            found,
            oracle.judge(found),
        )

    def _plan(self, seats: int) -> Sequence[Fault]:
        told = self._settings
        return plan(random.Random(f"{told.seed} faults"), told.faults, told.seconds, seats, told.lease, self._possible)

    async def _found(self, client: Client, fleet: Fleet, driver: Driver) -> Evidence:
        oddities = self._ground.oddities()
        for seat in fleet.seats:
            oddities += logs.oddities(seat.log, self._ground.known, self._ground.secrets)
        return Evidence(
            client.history,
            tuple(effects.read(self._journal)),
            await self._ground.look(),
            fleet.wrong,
            oddities,
            self._ground.own_clock or all(each.fault.kind not in OF_THE_CLOCK for each in driver.inflicted),
        )

    @asynccontextmanager
    async def _fleet(self) -> AsyncGenerator[Fleet]:
        settings = self._settings
        ground = self._ground
        environment = {"CHAOS_JOURNAL": str(self._journal), "CHAOS_LEASE": f"{settings.lease:g}s"}
        environment |= ground.environment
        fleet = Fleet(settings.kinds, self._scratch, ground.url, ground.leases, environment, self._poisoned)
        try:
            fleet.begin()
            yield fleet
        finally:
            await fleet.close()

    def _poisoned(self, pid: int) -> bool:
        return any(effect.event == "kill" and effect.pid == pid for effect in effects.read(self._journal))

    async def _rage(
        self, fleet: Fleet, clients: load.Load, others: Contractor, driver: Driver, plan: Sequence[Fault]
    ) -> None:
        """Faults and clients at once; then clients alone, until nothing is left to do or it has taken too long."""
        async with asyncio.TaskGroup() as group:
            creating = [group.create_task(clients.create()) for _ in range(clients.bounds.creators)]
            tending = [group.create_task(clients.tend()) for _ in range(clients.bounds.readers)]
            settling = group.create_task(others.serve())
            saying = group.create_task(self._say_how_it_goes(clients, driver, len(plan)))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.seconds * _LATE + _LONGEST):
                    await driver.rage(plan)
            driver.heal()
            await self._ground.heal()
            clients.finish()
            others.finish()
            try:
                await fleet.all_up()
            except TimeoutError as error:
                fleet.wrong.append(str(error))
            await asyncio.wait(creating)
            _say(f"calm after {driver.now():.0f} s, with {clients.unfinished} tasks unfinished")
            await self._settled(tending)
            for task in [*tending, settling, saying]:
                task.cancel()

    async def _settled(self, tending: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the clients have nothing left to do, and the tasks of lost handles have come to rest too."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLED_WITHIN):
                await asyncio.wait(tending)
                while await self._ground.working():  # noqa: ASYNC110 - in other processes
                    await asyncio.sleep(0.2)

    async def _say_how_it_goes(self, clients: load.Load, driver: Driver, planned: int) -> None:
        while True:
            await asyncio.sleep(_SAY_EVERY)
            done = len(driver.inflicted)
            _say(f"{driver.now():.0f} s: {done} of {planned} faults, {clients.made} calls, {clients.unfinished} open")

    # -- what is kept --------------------------------------------------------------------------------------------------

    def keep(self, violations: Sequence[oracle.Violation]) -> None:
        """Copy the evidence to where it outlives the scratch folder."""
        target = self._settings.keep / f"{self._settings.store}-seed-{self._settings.seed}"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in (*self._scratch.glob("*.log"), self._journal):
            if path.exists():
                shutil.copy(path, target)
        self._ground.keep(target)
        _dump(target / "history.jsonl", self._client.history if self._client else [])
        _dump(target / "faults.jsonl", self._driver.inflicted if self._driver else [])
        _dump(target / "violations.jsonl", violations)
        _say(f"evidence: {target}")


def _dump(path: Path, values: Sequence[object]) -> None:
    with path.open("w") as file:
        for value in values:
            assert dataclasses.is_dataclass(value)
            assert not isinstance(value, type)
            file.write(json.dumps(dataclasses.asdict(value)) + "\n")


def _say(progress: str) -> None:
    """Tell whoever waits; the table alone goes to standard output."""
    print(progress, file=sys.stderr, flush=True)
