"""Hints between replicas: what one of them commits, all others hear of within milliseconds (LISTEN and NOTIFY).

A hint is sent after the commit, on a connection of its own: within the transaction, NOTIFY would make all commits of
the database wait for one another. What a replica has committed while a message was on its way goes into the next one,
so their number is bounded by round trips and not by changes. And hints are no more than that: one that is lost costs
the time to the next look, since workers look by themselves now and then, and what is read is the row.

The same connection listens. When it breaks, it is opened anew by and by; what was said meanwhile is lost, so everybody
is told to look.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.domain.model import Change, Status

from .url import Connection, Target

__all__ = ["CHANNEL", "Hints"]

logger = logging.getLogger(__name__)

CHANNEL: Final = "perdure"
_MESSAGE: Final = 7500
"""Bytes of a message; PostgreSQL takes less than 8000."""
_CONNECT: Final = 3.0
_SEND: Final = 5.0
_PAUSES: Final = (0.05, 0.2, 0.5, 1.0)
"""Seconds before each attempt to connect anew; the last of them from then on."""
_CHECK: Final = 5.0
"""Seconds of silence after which the connection is asked whether it is still there."""
_KEPT: Final = 5_000
"""Hints that may wait to be sent. Beyond that they are worth less than a look."""


class Hints:
    """One connection of this process, over which it tells and hears of changes.

    `hear` is called with what others have changed; `missed` when that may not be everything.
    """

    def __init__(
        self, target: Target, hear: Callable[[Change], None], missed: Callable[[], None] = lambda: None
    ) -> None:
        self._target = target
        self._hear = hear
        self._missed = missed
        self._me = secrets.token_hex(4)
        self._outgoing: dict[int, Change] = {}
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self.connected = asyncio.Event()

    async def open(self) -> None:
        """Begin to listen; changes that are committed after this are heard."""
        self._something, self.connected, self._outgoing = asyncio.Event(), asyncio.Event(), {}
        self._closing = False
        connection = await self._connect()
        self._task = asyncio.create_task(self._run(connection), name="perdure-hints")

    async def close(self) -> None:
        """Send what waits, and hang up."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing = True
        self._something.set()
        await asyncio.wait([task], timeout=1)
        task.cancel()
        await asyncio.wait([task])

    def tell(self, changes: Sequence[Change]) -> None:
        """Have others hear of changes. Several of one task become one."""
        for change in changes:
            before = self._outgoing.pop(change.seq, None)
            if before is not None:
                change = _both(before, change)
            if len(self._outgoing) < _KEPT:
                self._outgoing[change.seq] = change
        self._something.set()

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _run(self, connection: Connection) -> None:
        while not self._closing:
            try:
                await self._talk(connection)
            except Exception as error:  # noqa: BLE001 - the boundary of the task: hints must never end
                logger.warning("The connection for hints broke; workers look by themselves: %s", type(error).__name__)
            finally:
                self.connected.clear()
                connection.terminate()
            if not self._closing:
                connection = await self._reconnect()
                self._missed()

    async def _reconnect(self) -> Connection:
        attempt = 0
        while True:
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1
            try:
                return await self._connect()
            except Exception as error:  # noqa: BLE001 - as above
                logger.debug("No connection for hints yet: %s", type(error).__name__)

    async def _connect(self) -> Connection:
        async with asyncio.timeout(_CONNECT + 1):
            connection = await self._target.connect_directly(_CONNECT)
            try:
                # A hint that a crash of the server loses was only a hint: nothing has to wait for a disk.
                await connection.execute("SET synchronous_commit = off")
                await connection.add_listener(CHANNEL, self._heard)
                connection.add_termination_listener(lambda _: self._something.set())
            except BaseException:
                connection.terminate()
                raise
        self.connected.set()
        return connection

    async def _talk(self, connection: Connection) -> None:
        """Send hints as they come, until the connection breaks."""
        while not self._closing or self._outgoing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK):
                    await self._something.wait()
            self._something.clear()
            messages = _messages(self._me, self._outgoing)
            async with asyncio.timeout(_SEND):
                if messages:
                    await connection.execute("SELECT pg_notify($1, m) FROM unnest($2::text[]) AS m", CHANNEL, messages)
                else:  # a connection that is gone without a word is found out by using it
                    await connection.execute("SELECT 1")

    def _heard(self, _: object, __: int, ___: str, payload: object) -> None:
        for change in _read(str(payload), self._me):
            self._hear(change)


# -- messages ----------------------------------------------------------------------------------------------------------
# A JSON list: who says it, then for each change its number, the task's id, its status, and what it asks for, as two
# bits of a number. Whatever else comes over the channel is not ours, and is ignored.


def _both(before: Change, after: Change) -> Change:
    return Change(
        after.task_id, after.seq, after.status, before.runnable or after.runnable, before.cancel or after.cancel
    )


def _messages(me: str, outgoing: dict[int, Change]) -> list[str]:
    """What waits, as messages; nothing waits afterwards."""
    messages: list[str] = []
    parts, size = [f'"{me}"'], 0
    for change in outgoing.values():
        flags = change.runnable + 2 * change.cancel
        part = json.dumps([change.seq, change.task_id, change.status.value, flags], separators=(",", ":"))
        if size + len(part) > _MESSAGE:
            messages.append(f"[{','.join(parts)}]")
            parts, size = [f'"{me}"'], 0
        parts.append(part)
        size += len(part) + 1
    if len(parts) > 1:
        messages.append(f"[{','.join(parts)}]")
    outgoing.clear()
    return messages


def _read(payload: str, me: str) -> list[Change]:
    """The changes in a message of somebody else."""
    try:
        sender, *parts = json.loads(payload)
        return [] if sender == me else [_change(*part) for part in parts]
    except (ValueError, TypeError):
        return []


def _change(seq: Any, task_id: Any, status: Any, flags: Any) -> Change:
    return Change(str(task_id), int(seq), Status(status), bool(flags & 1), bool(flags & 2))
