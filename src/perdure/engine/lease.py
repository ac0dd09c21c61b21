"""Sessions of neighbours: who this process is, whether another one is gone, and taking over what it held.

A lease that lapses frees its runs, but that takes as long as the lease. Most dead workers died on this very machine,
and the kernel knows: so each session records where its process lives (host, boot, pid namespace, pid, start time), and
a neighbour on the same machine that finds no such process takes over at once. The record is read strictly. Another
host, another pid namespace, a record that lacks something: nobody can tell, and the lease decides. Being wrong would
cost a second run of a task and never a second result, since the fence guards every write.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
from pathlib import Path

from perdure.domain.errors import StoreUnavailable
from perdure.domain.model import JSONObject
from perdure.store.base import Store

__all__ = ["Neighbours", "gone", "identity"]

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LOOK_EVERY = 0.5
"""Seconds between looks at the neighbours, give or take a fifth: a lapsed lease is taken over within the second that follows it."""


def identity() -> JSONObject:
    """Where this process lives. On a system without /proc, only host and pid are known."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot": _boot(),
        "pids": _pid_namespace(),
        "pid": pid,
        "started": _started(pid),
    }


def gone(info: JSONObject) -> bool:
    """Whether the process that `info` (its `identity()`) describes is surely dead. False when nobody can tell."""
    pid = info.get("pid")
    if not isinstance(pid, int) or info.get("host") != socket.gethostname():
        return False
    if info.get("boot") != _boot():
        return info.get("boot") is not None and _boot() is not None  # the machine was restarted since
    if info.get("pids") != _pid_namespace():
        return False
    return not _exists(pid) or _started(pid) != info.get("started")


def _boot() -> str | None:
    return _BOOT_ID.read_text("ascii").strip() if _BOOT_ID.exists() else None


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None


def _started(pid: int) -> int | None:
    """When the process was started, in clock ticks since the boot: tells a process from a later one with the same pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # Field 22; the command in parentheses before it may itself contain spaces and parentheses.
    return int(stat.rpartition(")")[2].split()[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to somebody else
        return True
    return True


class Neighbours:
    """Watches the sessions of all workers on the store, and frees what dead ones held."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take_over(self) -> int:
        """One look. Returns how many runs were freed (or failed, their attempts being used up)."""
        sessions = await self._store.sessions()
        dead = [session.id for session, lapsed in sessions if not lapsed and gone(session.info)]
        if not dead and not any(lapsed for _, lapsed in sessions):
            return 0
        freed = await self._store.take_over(dead)
        logger.info("took over %d runs of dead workers", freed)
        return freed

    async def watch(self) -> None:
        """Look again and again, until cancelled. Jittered, so that many replicas don't all look at once."""
        while True:
            try:
                await self.take_over()
            except StoreUnavailable:
                logger.warning("could not look for dead workers: the store is unavailable")
            await asyncio.sleep(_LOOK_EVERY * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, no secret
