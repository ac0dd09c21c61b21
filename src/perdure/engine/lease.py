"""Sessions of neighbours: who this process is, whether another one is gone, and taking over what it held.

A lease that lapses frees its runs, but that takes as long as the lease. Most dead workers died on this very machine,
and the kernel knows: so each session records where its process lives (host, boot, pid namespace, pid, start time), and
a neighbour on the same machine that finds no such process takes over at once. The record is read strictly. Another
host, another boot, another pid namespace, a record that lacks something: nobody can tell, and the lease decides. Many
machines and containers go by one host name, so another boot is as likely another machine as this one before it was
restarted. Being wrong would cost a second run of a task and never a second result, since the fence guards every write.

A process that is dead and that its parent has not yet asked about (a zombie) still has its pid and its start time, but
it can never write again, so it counts as gone: a supervisor that is slow to reap must not cost a whole lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import getnode

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import JSONObject, Session
from perdure.store.base import Workers

__all__ = ["Neighbours", "alive", "gone", "identity"]

logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_INVENTED = 1 << 40
"""The bit of a card's number that marks it as drawn at random, by each process, since none was found."""
_LOOK_EVERY = 0.5
"""Seconds between looks at the neighbours: a lapsed lease is taken over within a second."""
_JITTER = 0.2
"""By which part of that each may come sooner or later."""


def identity() -> JSONObject:
    """Where this process lives. On a system without /proc, only host, network card and pid are known."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot": _boot(),
        "pids": _pid_namespace(),
        "pid": pid,
        "started": process.started if (process := _process(pid)) else None,
    }


def gone(info: JSONObject) -> bool:
    """Whether the process that `info` (its `identity()`) describes is surely dead. False when nobody can tell."""
    pid, started = info.get("pid"), info.get("started")
    if not isinstance(pid, int) or info.get("host") != socket.gethostname():
        return False
    if (here := _boot()) is None or info.get("boot") != here:
        return False
    if info.get("pids") != _pid_namespace():
        return False
    if not _exists(pid):
        return True
    process = _process(pid)
    if process is None or started is None:  # no /proc, or one that hides other users' processes
        return False
    return process.dead or process.started != started


def alive(info: JSONObject) -> bool:
    """Whether the process that `info` describes surely lives, on this very machine. It may be stopped, or hang."""
    if info.get("host") != socket.gethostname() or info.get("boot") != _boot() or info.get("pids") != _pid_namespace():
        return False
    pid, started = info.get("pid"), info.get("started")
    process = _process(pid) if isinstance(pid, int) else None
    return process is not None and not process.dead and process.started == started


def _boot() -> str | None:
    """Tells this machine, since it was started, from all others. Without /proc, by its network card; None if it can't.

    Not so where there is /proc: containers on different machines have the same card.
    """
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        card = _INVENTED if _PROC.exists() else getnode()
        return None if card & _INVENTED else f"{card:012x}"


def _pid_namespace() -> str | None:
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Process:
    started: int
    """In clock ticks since the boot: tells a process from a later one with the same pid."""
    dead: bool


def _process(pid: int) -> _Process | None:
    """What the kernel says about a process; None if it does not."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # From field 3 on; the command in parentheses before it may itself contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    # While a process dies, its first thread may be done and others still be writing: only the last one makes it dead.
    return _Process(started, dead=state in "ZXx" and threads <= 1)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it exists and belongs to somebody else; or this is no pid, and nobody can tell
        return True
    return True


class Neighbours:
    """Watches the sessions of all workers on the store, and frees what dead ones held.

    `keep_own` prolongs the watcher's own lease and names it; it is called before anything is taken over. After the
    event loop stood still for longer than the lease (a tool that computes on it, a laptop that slept), the own lease
    has lapsed like those of the dead, and this watcher is usually the first to run again: without it, a worker would
    take its own runs over, and each would lose an attempt.

    Leases go by the wall clock, since that is what machines share. When it is set forward by more than a lease, all of
    them have lapsed, and nobody is dead. So a process that is known to live, and that was seen to renew its lease
    less than a lease ago (`lease_ms`, by a clock that nobody sets), is left alone.
    """

    def __init__(
        self,
        store: Workers,
        keep_own: Callable[[], Awaitable[str]],
        lease_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._keep_own = keep_own
        # Seen up to a look late. What is not yet this old may be, so a worker that hangs is taken over no later for it.
        self._spared = lease_ms / 1000 - _LOOK_EVERY * (1 + _JITTER)
        self._clock = clock
        self._renewed: dict[str, tuple[int, float]] = {}
        """Up to when each lease lasts that had not lapsed at the last look, and when that was first seen."""

    async def take_over(self) -> int:
        """One look. Returns how many runs were freed (or ended: their attempts were used up, or they were to stop)."""
        sessions = await self._store.sessions()
        self._note(sessions)
        dead = [session.id for session, lapsed in sessions if not lapsed and gone(session.info)]
        spared = [session.id for session, lapsed in sessions if lapsed and self._spares(session)]
        if not dead and all(session.id in spared for session, lapsed in sessions if lapsed):
            return 0
        own = await self._keep_own()
        # Named besides: on a slow disk the renewal's own commit may take longer than the lease that it prolongs.
        freed = await self._store.take_over(dead, keep=[own, *spared])
        if freed:
            logger.info("took over %d %s of dead workers", freed, "run" if freed == 1 else "runs")
        return freed

    def _note(self, sessions: Iterable[tuple[Session, bool]]) -> None:
        """Remember when each lease was seen to be renewed; one that has lapsed keeps what is known of it."""
        before, now = self._renewed, self._clock()
        self._renewed = {}
        for session, lapsed in sessions:
            known = before.get(session.id)
            if known is not None and (lapsed or known[0] == session.expires_at):
                self._renewed[session.id] = known
            elif not lapsed:
                self._renewed[session.id] = (session.expires_at, now)

    def _spares(self, session: Session) -> bool:
        """Whether a lease that has lapsed is no sign of a death."""
        seen = self._renewed.get(session.id)
        return seen is not None and self._clock() - seen[1] < self._spared and alive(session.info)

    async def watch(self) -> None:
        """Look again and again, until cancelled. Jittered, so that many replicas don't all look at once."""
        while True:
            try:
                await self.take_over()
            except StoreUnavailable:
                logger.debug("could not look for dead workers: the store is unavailable")
            await asyncio.sleep(_LOOK_EVERY * random.uniform(1 - _JITTER, 1 + _JITTER))  # noqa: S311 - jitter, no secret
