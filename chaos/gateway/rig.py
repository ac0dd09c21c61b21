"""One storm about the gateways, from the first process to the verdict, with nothing left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from chaos import faults, logs
from chaos.faults import Driver
from chaos.oracle import Violation
from chaos.plan import plan

from . import oracle
from .client import Client, connected
from .house import House, built, standing
from .load import Load, Pace
from .oracle import Evidence
from .told import Asked, Why

__all__ = ["Settings", "run"]

_LEASE: Final = 2.0
"""Seconds, as `ours` has it."""
_SETTLED_WITHIN: Final = 45.0
"""Seconds for what is unfinished when the storm ends."""
_RESTED_WITHIN: Final = 30.0
"""Seconds after which every gateway has to let everything through again: the longest pause of a breaker."""
_LATE: Final = 1.3
_LONGEST: Final = 20.0
"""By how much the faults may take longer than planned: so many times as long, and so many seconds more."""
_SAY_EVERY: Final = 15.0
"""Seconds between two lines on how it goes."""
_SHOWN: Final = 40
"""Violations that are printed; the evidence has all."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `python -m chaos.gateway` was told. `folder`: for scratch files. `keep`: where the evidence goes."""

    seconds: float = 300.0
    faults: int = 120
    rate: float = 4.0
    seed: int = 0
    folder: Path | None = None
    keep: Path = Path("build/chaos")


@dataclass(frozen=True, slots=True)
class _Storm:
    evidence: Evidence
    inflicted: Sequence[str]
    planned: int
    starts: int
    kind: str


def run(settings: Settings) -> int:
    """A whole storm; the exit status."""
    with (
        tempfile.TemporaryDirectory(prefix="chaos-", dir=settings.folder) as name,
        built(Path(name)) as (store, redis, python),
    ):
        scratch = Path(name)

        async def storm() -> _Storm:
            async with standing(scratch, store, redis, python) as house, connected() as client:
                return await _storm(settings, house, client)

        came = asyncio.run(storm())
        violations = oracle.judge(came.evidence)
        if violations:
            _keep(settings, scratch, came.evidence, violations)
    return _conclude(settings, came, violations)


async def _storm(settings: Settings, house: House, client: Client) -> _Storm:
    fleet = house.fleet
    await fleet.all_up()
    _say(f"{len(fleet.seats)} processes are up, the store on {house.kind}")
    began = time.monotonic()
    driver = Driver(fleet, None, house.troubles, lambda: time.monotonic() - began)
    possible, _ = faults.possible("the clocks are left alone", house.troubles)
    rng = random.Random(f"{settings.seed} faults")
    planned = plan(rng, settings.faults, settings.seconds, len(fleet.seats), _LEASE, possible)
    load = Load(client, house.gateways, random.Random(f"{settings.seed} load"), Pace(settings.rate))
    async with asyncio.TaskGroup() as group:
        creating = group.create_task(load.create())
        tending = [group.create_task(load.tend()) for _ in range(6)]
        listening = [group.create_task(load.listen()) for _ in range(3)]
        saying = group.create_task(_say_how_it_goes(load, driver, len(planned)))
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.seconds * _LATE + _LONGEST):
                await driver.rage(planned)
        driver.heal()
        await house.heal()
        load.finish()
        with suppress(TimeoutError):
            await fleet.all_up()
        await asyncio.wait([creating, *listening])
        _say(f"calm after {driver.now():.0f} s, with {load.open} tasks unfinished")
        await asyncio.wait(tending, timeout=_SETTLED_WITHIN)
        saying.cancel()
        for task in tending:
            task.cancel()
    await _last_look(client, load)
    routes, rows = await house.routes(), await house.rows()
    await fleet.stop()
    oddities = [one for log in house.logs for one in logs.oddities(log, _KNOWN, house.secrets)]
    evidence = Evidence(client.asked, client.frames, load.cancelled, routes, rows, fleet.wrong, oddities)
    felt = [one.fault.kind for one in driver.inflicted if one.felt]
    return _Storm(evidence, felt, len(planned), fleet.starts, house.kind)


async def _last_look(client: Client, load: Load) -> None:
    """Until all was shown, or for as long as a gateway may leave a backend alone that is well again."""
    deadline = time.monotonic() + _RESTED_WITHIN
    while True:
        seen = len(client.asked)
        await load.look_again()
        unseen = [each for each in client.asked[seen:] if each.result is None]
        if all(each.error and each.error["code"] == oracle.NOT_FOUND for each in unseen) or time.monotonic() > deadline:
            return
        del client.asked[seen:]
        await asyncio.sleep(1)


async def _say_how_it_goes(load: Load, driver: Driver, planned: int) -> None:
    while True:
        await asyncio.sleep(_SAY_EVERY)
        _say(f"{driver.now():.0f} s: {len(driver.inflicted)} of {planned} faults, {load.made} calls, {load.open} open")


_KNOWN: Final[logs.Known] = (
    logs.OF_OURS[0],
    # Who is told to end while the store is away, or while a gateway is parted from it, cuts off what waits for that.
    re.compile(f"{logs.OF_OURS[1].pattern}|timeout graceful shutdown exceeded"),
)


# -- what is told ------------------------------------------------------------------------------------------------------


def _conclude(settings: Settings, storm: _Storm, violations: Sequence[Violation]) -> int:
    print(f"Chaos about gateways: seed {settings.seed}, {settings.seconds:g} s, store on {storm.kind}\n")
    lines = [*_lines(storm)]
    width = max(len(name) for name, _ in lines)
    for name, figure in lines:
        print(f"{name:<{width}}  {figure}".rstrip())
    print()
    for violation in violations[:_SHOWN]:
        print(f"VIOLATION {str(violation)[:1500]}")
    if violations:
        print(f"oracle: {len(violations)} violations; again with --seed {settings.seed}")
    else:
        print(f"oracle: nothing found, by {len(oracle.RULES)} rules")
    return 1 if violations else 0


def _lines(storm: _Storm) -> Iterator[tuple[str, str]]:
    evidence = storm.evidence
    tasks = [task for known in evidence.tasks.values() for task in known]
    yield "tasks accepted", f"{len(tasks)}  ({_counts(Counter(task.tool for task in tasks))})"
    last = {each.about: each.result for each in evidence.asked if each.why is Why.LAST and each.result}
    yield "  as they were last seen", _counts(Counter(result["status"] for result in last.values()))
    yield "  cancelled by tasks/cancel", str(len(evidence.cancelled))
    for why in (Why.HUNG_UP, Why.TAKEN_BACK):
        yield f"requests {why}", _answered(each for each in evidence.asked if each.why is why)
    yield "requests about others' tasks", _answered(each for each in evidence.asked if each.why is Why.STRANGER)
    yield "requests of owners", _answered(each for each in evidence.asked if each.why is Why.OWN)
    yield "frames of streams", str(len(evidence.frames))
    routed = {route.backend_task_id for route in evidence.routes.values()}
    lost = [row for row in evidence.rows.values() if row.id not in routed]
    yield "tasks that nobody was told of", _counts(Counter(row.status for row in lost))
    yield "faults", f"{len(storm.inflicted)} of {storm.planned} planned"
    for kind, count in sorted(Counter(storm.inflicted).items()):
        yield f"  {kind}", str(count)
    yield "processes started", str(storm.starts)


def _answered(asked: Iterator[Asked]) -> str:
    each = [*asked]
    results, errors = (sum(getattr(one, what) is not None for one in each) for what in ("result", "error"))
    unanswered = sum(one.received == inf for one in each)
    return f"{len(each)}: {results} results, {errors} errors, {unanswered} unanswered"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _keep(settings: Settings, scratch: Path, evidence: Evidence, violations: Sequence[Violation]) -> None:
    target = settings.keep / f"gateway-seed-{settings.seed}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in scratch.glob("*.log"):
        shutil.copy(path, target)
    kept = {"asked": evidence.asked, "frames": evidence.frames, "violations": violations}
    kept |= {"routes": [*evidence.routes.values()], "rows": [*evidence.rows.values()]}
    for name, values in kept.items():
        with (target / f"{name}.jsonl").open("w") as file:
            file.writelines(json.dumps(dataclasses.asdict(each), default=list) + "\n" for each in values)
    _say(f"evidence: {target}")


def _say(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
