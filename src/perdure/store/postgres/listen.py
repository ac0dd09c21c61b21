"""Hints between replicas: what one of them commits, all others hear of within milliseconds (LISTEN and NOTIFY).

A hint is sent after the commit, on a connection of its own: within the transaction, NOTIFY would make all commits of
the database wait for one another. What a replica has committed while a message was on its way goes into the next one,
so their number is bounded by round trips and not by changes. And hints are no more than that: one that is lost costs
the time to the next look, since workers look by themselves now and then, and what is read is the row.

The same connection listens. When it breaks, it is opened anew by and by. What this replica has to say waits for that;
what others said meanwhile is lost, so everybody here is told to look.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Final

from perdure.domain.model import Change, Status

from .outage import Outage
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
_SAID_AFTER: Final = 30.0
"""Seconds without a connection before that is said in the log. If the whole database is away, the lanes say so."""
_CHECK: Final = 5.0
"""Seconds of silence after which the connection is asked whether it is still there."""
_KEPT: Final = 5_000
"""Hints that may wait to be sent. Beyond that they are worth less than a look."""


class Hints:
    """One connection of this process, over which it tells and hears of changes.

    `hear` is called with what others have changed; with None when that may not be everything.
    """

    def __init__(self, target: Target, hear: Callable[[Change | None], None]) -> None:
        self._target = target
        self._hear = hear
        self._me = secrets.token_hex(4)
        self._outgoing: dict[int, Change] = {}
        self._too_many = False
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._outage = Outage("The connection over which replicas tell each other of changes")
        self.connected = asyncio.Event()

    async def open(self) -> None:
        """Begin to listen; changes that are committed after this are heard."""
        self._something, self.connected, self._outgoing = asyncio.Event(), asyncio.Event(), {}
        self._closing = self._too_many = False
        connection = await self._connect()
        self._task = asyncio.create_task(self._run(connection), name="perdure-hints")

    async def close(self) -> None:
        """Send what waits, and hang up."""
        task, self._task = self._task, None
        if task is None:
            return
        self._closing = True
        self._something.set()
        if self.connected.is_set():
            await asyncio.wait([task], timeout=1)
        task.cancel()
        await asyncio.wait([task])

    def tell(self, changes: Iterable[Change]) -> None:
        """Have others hear of changes. Several of one task become one."""
        for change in changes:
            before = self._outgoing.pop(change.seq, None)
            self._outgoing[change.seq] = change if before is None else _both(before, change)
        if len(self._outgoing) > _KEPT:
            self._outgoing.clear()
            self._too_many = True
        self._something.set()

    # -- the connection ------------------------------------------------------------------------------------------------

    async def _run(self, connection: Connection) -> None:
        while True:
            try:
                await self._talk(connection)
            except Exception as error:  # noqa: BLE001 - the boundary of the task: hints must never end
                logger.debug("The connection for hints broke: %s", type(error).__name__)
            finally:
                self.connected.clear()
                connection.terminate()
            if self._closing:
                return
            connection = await self._reconnect()
            self._hear(None)

    async def _reconnect(self) -> Connection:
        attempt, since = 0, monotonic()
        while True:
            await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1
            try:
                connection = await self._connect()
            except Exception as error:  # noqa: BLE001 - as above
                if monotonic() - since >= _SAID_AFTER:
                    self._outage.begins(f"{type(error).__name__}; meanwhile workers look by themselves")
            else:
                self._outage.ends()
                return connection

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
        """Send hints as they come, until the connection breaks; or, at the end, until none waits."""
        while not self._closing or self._something.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK):
                    await self._something.wait()
            self._something.clear()
            await self._send(connection)

    async def _send(self, connection: Connection) -> None:
        """Send what waits. If it fails, that waits for the next connection: repeated hints do no harm."""
        outgoing, self._outgoing = self._outgoing, {}
        too_many, self._too_many = self._too_many, False
        messages = _messages(self._me, outgoing.values(), look=too_many)
        try:
            async with asyncio.timeout(_SEND):
                if messages:
                    await connection.execute("SELECT pg_notify($1, m) FROM unnest($2::text[]) AS m", CHANNEL, messages)
                else:  # a connection that is gone without a word is found out by using it
                    await connection.execute("SELECT 1")
        except BaseException:
            later, self._outgoing = self._outgoing, outgoing
            self._too_many = self._too_many or too_many
            self.tell(later.values())
            raise

    def _heard(self, _: object, __: int, ___: str, payload: object) -> None:
        for change in _read(str(payload), self._me):
            self._hear(change)


# -- messages ----------------------------------------------------------------------------------------------------------
# A JSON list: who says it, then for each change its number, the task's id, its status, and what it asks for, as two
# bits of a number; or null, for more changes than could be said. Whatever else comes over the channel is not ours, and
# is ignored.


def _both(before: Change, after: Change) -> Change:
    return Change(
        after.task_id, after.seq, after.status, before.runnable or after.runnable, before.cancel or after.cancel
    )


def _messages(me: str, changes: Iterable[Change], *, look: bool = False) -> list[str]:
    messages: list[str] = []
    begin = f'["{me}"'
    parts, size = [begin], len(begin) + 1
    for part in (*(["null"] if look else []), *map(_part, changes)):
        if size + len(part) + 1 > _MESSAGE:
            messages.append(",".join(parts) + "]")
            parts, size = [begin], len(begin) + 1
        parts.append(part)
        size += len(part) + 1
    if len(parts) > 1:
        messages.append(",".join(parts) + "]")
    return messages


def _part(change: Change) -> str:
    flags = change.runnable + 2 * change.cancel
    return json.dumps([change.seq, change.task_id, change.status.value, flags], separators=(",", ":"))


def _read(payload: str, me: str) -> Sequence[Change | None]:
    """The changes in a message of somebody else."""
    if payload.startswith(f'["{me}"'):  # half of all messages, where there are two replicas
        return ()
    try:
        _, *parts = json.loads(payload)
        return [None if part is None else _change(*part) for part in parts]
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return ()


def _change(seq: Any, task_id: Any, status: Any, flags: Any) -> Change:
    return Change(str(task_id), int(seq), Status(status), bool(flags & 1), bool(flags & 2))
