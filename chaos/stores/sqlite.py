"""SQLite: a file on a disk of its own, which can be filled, be slow, and fail."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from chaos.disk import Disk, disk
from chaos.evidence import Store
from chaos.interposer import Interposer, Knob, Meter, felt
from chaos.logs import OF_OURS
from chaos.plan import Fault, Share

from .base import Site, Trouble
from .reading import WORKING, account, queries

__all__ = ["SQLiteGround", "ground"]

FULL: Final = "full disk"
SLOW: Final = "slow fsync"
BROKEN: Final = "I/O error on fsync"

_BUSY: Final = 30.0
_TRIGGER: Final = """
CREATE TABLE audit (position INTEGER PRIMARY KEY, seq, before, after, old_version, version, old_updated, updated);
CREATE TRIGGER audit AFTER UPDATE ON task BEGIN
    INSERT INTO audit (seq, before, after, old_version, version, old_updated, updated)
    VALUES (NEW.seq, OLD.status, NEW.status, OLD.version, NEW.version, OLD.updated_at, NEW.updated_at);
END;
"""


@contextmanager
def ground(site: Site) -> Generator[SQLiteGround]:
    with disk(site.scratch, site.interposer, mount=site.mount) as made:
        yield SQLiteGround(made, site.interposer)


class SQLiteGround:
    """`Ground`. Time is the processes' own, and so is the clock that is set for them."""

    own_clock = False
    secrets: Sequence[str] = ()
    known = OF_OURS

    def __init__(self, ground: Disk, interposer: Interposer | str) -> None:
        self._disk = ground
        self._interposer = interposer if isinstance(interposer, Interposer) else None
        self.file = ground.folder / "tasks.db"
        self.kind = ground.kind
        self.environment: Mapping[str, str] = {}
        if self._interposer is not None:
            self.environment = self._interposer.environment(ground.folder)
        needs = None if self._interposer is not None else str(interposer)
        full, fsync = [asyncio.Lock()], [asyncio.Lock()]
        self.troubles: Mapping[str, Trouble] = {
            FULL: Trouble(Share(2, _full), self._fill, full, ground.missing),
            SLOW: Trouble(Share(2, _slow), self._slow_down, fsync, needs),
            BROKEN: Trouble(Share(2, _broken), self._break, fsync, needs),
        }

    @asynccontextmanager
    async def prepared(self) -> AsyncGenerator[None]:
        yield

    def url(self, seat: int) -> str:
        del seat
        return f"sqlite:///{self.file}"

    # -- what it holds -------------------------------------------------------------------------------------------------

    async def audit(self) -> None:
        with closing(sqlite3.connect(self.file, timeout=_BUSY)) as connection:
            connection.executescript(_TRIGGER)

    async def leases(self) -> set[int]:
        try:
            with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=0.1)) as connection:
                return {json.loads(info)["pid"] for (info,) in connection.execute("SELECT info FROM session")}
        except sqlite3.Error:
            return set()

    async def working(self) -> int:
        with closing(sqlite3.connect(self.file, timeout=_BUSY)) as connection:
            return connection.execute(WORKING.format("")).fetchone()[0]

    async def look(self) -> Store:
        with closing(sqlite3.connect(self.file, timeout=_BUSY)) as connection:
            found = {name: connection.execute(query).fetchall() for name, query in queries().items()}
            integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        return account(found, [each for each in integrity if each != "ok"])

    def oddities(self) -> list[str]:
        return []

    def keep(self, target: Path) -> None:
        if self.file.exists():
            with closing(sqlite3.connect(self.file)) as source, closing(sqlite3.connect(target / "tasks.db")) as copy:
                source.backup(copy)

    # -- what is done to it --------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        self._disk.free()
        if self._interposer is not None:
            self._interposer.set("fsync_delay_us", 0)
            self._interposer.set("fsync_fails_every", 0)

    async def _fill(self, fault: Fault) -> bool:
        """A log that is long already is only written over, and would not notice: so it is cut first."""
        await asyncio.to_thread(_truncate_log, self.file)
        before = 0 if self._interposer is None else self._interposer.read("writes_refused")
        try:
            await asyncio.to_thread(self._disk.fill)
            await asyncio.sleep(fault.span)
            return self._interposer is None or await felt(self._interposer, "writes_refused", before)
        finally:
            self._disk.free()

    async def _slow_down(self, fault: Fault) -> bool:
        return await self._turn("fsync_delay_us", int(fault.size * 1e6), fault.span, "fsyncs_delayed")

    async def _break(self, fault: Fault) -> bool:
        return await self._turn("fsync_fails_every", int(fault.size), fault.span, "fsyncs_failed")

    async def _turn(self, knob: Knob, value: int, seconds: float, meter: Meter) -> bool:
        assert self._interposer is not None
        before = self._interposer.read(meter)
        try:
            self._interposer.set(knob, value)
            await asyncio.sleep(seconds)
            return await felt(self._interposer, meter, before)
        finally:
            self._interposer.set(knob, 0)


def _full(rng: random.Random, _: float) -> tuple[float, float]:
    return rng.uniform(0.5, 2.5), 0.0


def _slow(rng: random.Random, lease: float) -> tuple[float, float]:
    """Its size is the delay in seconds."""
    return rng.uniform(1.5, 3.5), rng.uniform(0.05, 0.6 * lease)


def _broken(rng: random.Random, _: float) -> tuple[float, float]:
    """Its size says that each n-th fsync fails."""
    return rng.uniform(0.5, 2), rng.randrange(1, 5)


def _truncate_log(store: Path) -> None:
    """Move the log into the database and cut it to nothing, if its users let us."""
    with suppress(sqlite3.Error), closing(sqlite3.connect(store, timeout=0.5)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
