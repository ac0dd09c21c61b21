"""What machines, networks and operators do to a PostgreSQL server and to the connections of its clients."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, ParamSpec

import asyncpg

from chaos.links import Link
from chaos.plan import Fault, Share
from perdure.testing.postgresql import Cluster, Mode

from .base import Trouble

__all__ = ["Troubles"]

P = ParamSpec("P")

_CONNECT: Final = 10.0
_TABLES: Final = ("task", "run", "session", "input", "entry")
_LISTENS: Final = "query ILIKE 'LISTEN%' OR query LIKE '%pg_notify%' OR query = 'SELECT 1'"
"""The connection for hints, by the last that it said."""
_PATIENCE: Final = 3.0
_COMMITS: Final = 0.7
"""How many of the answers that are lost are those to a COMMIT."""
_TIMEOUTS: Final = 14.0
"""Seconds that are longer than any timeout of a process or of the server."""


class Troubles:
    """Inflicts them. Those of the server come one at a time; each link has its own at the same time."""

    def __init__(self, cluster: Cluster, links: Sequence[Link], user: str, database: str) -> None:
        self._cluster = cluster
        self._links = links
        self._user = user
        self._url = cluster.url(database)
        self._server = asyncio.Lock()
        self._one_by_one = threading.Lock()
        one, each = [self._server], [asyncio.Lock() for _ in links]
        self.kinds: Mapping[str, Trouble] = {
            "backends terminated": Trouble(Share(3, _some), self._terminate, one),
            "LISTEN connections terminated": Trouble(Share(2, _moment), self._stop_listening, one),
            "SIGKILL of a backend": Trouble(Share(1, _moment), self._crash, one),
            "server restarted, immediate": Trouble(Share(3, _down), self._restart_immediately, one),
            "server restarted, fast": Trouble(Share(1, _down), self._restart_in_order, one),
            "SIGSTOP of the server": Trouble(Share(2, _short_of_the_lease), self._pause, one),
            "SIGSTOP of the server past the lease": Trouble(Share(2, _past_timeouts), self._pause, one),
            "no more connections": Trouble(Share(1, _moment), self._refuse, one),
            "server read-only": Trouble(Share(1, _moment), self._forbid, one),
            "table locked": Trouble(Share(1, _past_lock_timeout), self._lock, one),
            "connections cut": Trouble(Share(2, _moment), self._cut, each),
            "answers lost": Trouble(Share(4, _moment), self._deafen, each),
            "network parted past the lease": Trouble(Share(3, _past_timeouts), self._part, each),
            "slow network": Trouble(Share(2, _lagging), self._slow_down, each),
        }

    async def heal(self) -> None:
        """What was broken off in the middle is undone. Links undo their own."""
        async with self._server:
            await self._operate(self._cluster.resume)
            if not self._cluster.running:
                await self._operate(self._cluster.start)
            await self._do(f"ALTER ROLE {self._user} CONNECTION LIMIT -1; ALTER ROLE {self._user} RESET ALL")
            for link in self._links:
                await link.listen()

    async def _operate(self, do: Callable[P, None], *arguments: P.args, **more: P.kwargs) -> None:
        """In a thread, and after what another thread was left alone with when its trouble was broken off."""

        def in_turn() -> None:
            with self._one_by_one:
                do(*arguments, **more)

        await asyncio.to_thread(in_turn)

    # -- the server ----------------------------------------------------------------------------------------------------

    async def _terminate(self, fault: Fault) -> bool:
        """`size`: of each connection, how likely it is to be one of them."""
        return await self._end_some(f"random() < {fault.size}")

    async def _stop_listening(self, _: Fault) -> bool:
        return await self._end_some(_LISTENS)

    async def _crash(self, _: Fault) -> bool:
        """One crash is everybody's: the server ends all others and recovers."""
        async with self._connected() as connection:
            pid = await connection.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE usename = $1 ORDER BY random() LIMIT 1", self._user
            )
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    async def _restart_immediately(self, fault: Fault) -> bool:
        return await self._restart("immediate", fault.span)

    async def _restart_in_order(self, fault: Fault) -> bool:
        return await self._restart("fast", fault.span)

    async def _restart(self, mode: Mode, seconds: float) -> bool:
        """Meanwhile connections are refused, as by a machine whose server is not there."""
        try:
            for link in self._links:
                link.refuse()
            await self._operate(self._cluster.stop, mode)
            await asyncio.sleep(seconds)
        finally:
            await self._operate(self._cluster.start)
            for link in self._links:
                await link.listen()
        return True

    async def _pause(self, fault: Fault) -> bool:
        before = self._asked()
        try:
            await self._operate(self._cluster.pause)
            await asyncio.sleep(fault.span)
        finally:
            await self._operate(self._cluster.resume)
        return self._asked() > before

    async def _refuse(self, fault: Fault) -> bool:
        before = self._asked()
        try:
            await self._do(f"ALTER ROLE {self._user} CONNECTION LIMIT 0")
            await self._end("true")
            await asyncio.sleep(fault.span)
        finally:
            await self._do(f"ALTER ROLE {self._user} CONNECTION LIMIT -1")
        return self._asked() > before

    async def _forbid(self, fault: Fault) -> bool:
        """As after a failover: whoever connects finds that this is the standby now."""
        try:
            await self._do(f"ALTER ROLE {self._user} SET default_transaction_read_only = on")
            ended = await self._end_some("random() < 0.7")
            await asyncio.sleep(fault.span)
        finally:
            await self._do(f"ALTER ROLE {self._user} RESET default_transaction_read_only")
            await self._end("true")  # those that came meanwhile would find it so for as long as they live
        return ended

    async def _lock(self, fault: Fault) -> bool:
        """As a migration does, or somebody with a console."""
        table = _TABLES[int(fault.size * len(_TABLES))]
        async with self._connected() as connection, connection.transaction():
            await connection.execute(f"LOCK TABLE perdure.{table} IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(fault.span)
            return await connection.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")

    def _asked(self) -> int:
        return sum(link.asked for link in self._links)

    async def _end(self, condition: str) -> int:
        """`pg_terminate_backend` for the processes' connections that fulfil it; how many."""
        async with self._connected() as connection:
            return await connection.fetchval(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity "
                f"WHERE usename = $1 AND ({condition})",
                self._user,
            )

    async def _end_some(self, condition: str) -> bool:
        """The same; as soon as there are any. Whether there were."""

        async def ended() -> bool:
            return await self._end(condition) > 0

        return await _soon(ended)

    async def _do(self, statements: str) -> None:
        async with self._connected() as connection:
            await connection.execute(statements)

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[Any]:
        """The superuser's connection; once the server has recovered, if it must."""
        connection = await _patiently(self._url)
        try:
            yield connection
        finally:
            connection.terminate()

    # -- the links -----------------------------------------------------------------------------------------------------

    async def _cut(self, fault: Fault) -> bool:
        link = self._link(fault)

        async def met() -> bool:
            before = link.met
            link.cut()
            return link.met > before

        return await _soon(met)

    async def _deafen(self, fault: Fault) -> bool:
        link = self._link(fault)
        before = link.met

        async def met() -> bool:
            return link.met > before

        # In doubt is above all who has said COMMIT. Of a transaction that had only begun nothing is left.
        async with link.deaf(b"COMMIT" if fault.size < _COMMITS else b""):
            felt = await _soon(met)
            await asyncio.sleep(fault.span / 3)
        return felt

    async def _part(self, fault: Fault) -> bool:
        link = self._link(fault)
        before = link.met
        async with link.parted():
            await asyncio.sleep(fault.span)
        return link.met > before

    async def _slow_down(self, fault: Fault) -> bool:
        link = self._link(fault)
        before = link.met
        async with link.slow(fault.size):
            await asyncio.sleep(fault.span)
        return link.met > before

    def _link(self, fault: Fault) -> Link:
        return self._links[fault.seat % len(self._links)]


async def _soon(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it does, or comes to: a process may be on its way up, or have nothing to ask for just now."""
    deadline = time.monotonic() + _PATIENCE
    while not await holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def _patiently(url: str) -> Any:
    async with asyncio.timeout(_CONNECT * 3):
        while True:
            try:
                return await asyncpg.connect(url, timeout=_CONNECT)
            except (OSError, asyncpg.PostgresError):
                await asyncio.sleep(0.1)


# -- how long, and how much --------------------------------------------------------------------------------------------


def _moment(rng: random.Random, _: float) -> tuple[float, float]:
    return rng.uniform(0.3, 3), rng.random()


def _some(rng: random.Random, _: float) -> tuple[float, float]:
    """All of them, or some."""
    return 0.0, 1.0 if rng.random() < 0.4 else rng.uniform(0.1, 0.9)


def _down(rng: random.Random, _: float) -> tuple[float, float]:
    """At once, or after a while."""
    return 0.0 if rng.random() < 0.5 else rng.uniform(0.2, 4), 0.0


def _short_of_the_lease(rng: random.Random, lease: float) -> tuple[float, float]:
    return rng.uniform(0.2, 0.8 * lease), 0.0


def _past_timeouts(rng: random.Random, lease: float) -> tuple[float, float]:
    """Past the lease, and one in four past everything else."""
    return _TIMEOUTS if rng.random() < 0.25 else lease + rng.uniform(0.3, 4), 0.0


def _past_lock_timeout(rng: random.Random, _: float) -> tuple[float, float]:
    """Some are held for longer than anybody waits for a lock."""
    return rng.uniform(0.3, 7), rng.random()


def _lagging(rng: random.Random, _: float) -> tuple[float, float]:
    """`size`: the seconds that each message takes longer."""
    return rng.uniform(1, 4), rng.choice((0.02, 0.1, 0.4))
