"""A call that is on record, to what comes of it: made by one at a time, and again only where that is the same call.

Here it is decided when a record may go. It may once the server has said in its own words that there is no task, of a
call of which each answer was heard. As soon as one was not, there may be a task, and a refusal of a later try (the
server is full, or is asked too often) says nothing of the first one: the key stays, since another key would be another
task.

Nor is a call over that was refused once the user had answered it, in a round. A server without room gets the round
again, whoever it is. Whatever else it says (what it gave along is past its time, the token is), it may have begun with
the call when it asked, and the user would be asked once more by a call under another key. So where keys are honoured it
is made again from the beginning, once, with the answers on record: what comes then is the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import anyio
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool
from pydantic import ValidationError

from . import faults, pace
from .calling import Call, Unheard
from .errors import JournalUnusable, Unsure
from .journal import Journal, Record
from .listing import honours_keys, honours_keys_of, listed
from .once import LOOK_EVERY
from .snapshot import Snapshot

__all__ = ["Making"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Making:
    """Makes calls over one client. `chance`: from 0 to 1."""

    client: Client
    journal: Journal
    chance: Callable[[], float]

    async def taken(self, record: Record) -> Record:
        """The record of a call once nobody else makes it: with the task that came of it, or for this caller to make.

        Raises:
            Unsure: the server would take it for another call; or whoever made it has forgotten it.
        """
        while record.task_id is None:
            if not self.journal.is_busy(record):
                await self.check_repeatable(record)
                if self.journal.take(record):
                    return record
            else:
                await anyio.sleep(LOOK_EVERY)
            found = self.journal.reread(record)
            if found is None:
                raise Unsure(record)
            record = found
        return record

    async def answer(self, call: Call, record: Record, *, may_exist: bool) -> CallToolResult | Snapshot:
        """What the call comes to. Made again if that was lost, where the second one is known to be the first.

        `may_exist`: there may be a task already, from before.

        Raises:
            Unsure: nobody knows.
            MCPError, InputDeclined: there is no task, and no record; of a call that may have happened before, only the
                second, and the record stays.
            Exception: whatever a callback raises; likewise.
        """
        failures, make, has_started_over = 0, call.make, False
        while True:
            hint = 0.0
            try:
                return await make()
            except Unheard as unheard:
                if unheard.is_over:
                    raise Unsure(record) from unheard.__cause__
                await self.check_repeatable(record, unheard.__cause__)
                make, may_exist = call.make, True
            except Exception as error:  # boundary: whatever the SDK makes of a server, and callbacks
                is_refused = isinstance(error, MCPError) and not call.is_asking
                if is_refused and (may_exist or call.rounds) and faults.has_no_room(error):
                    make, hint = call.go_on, faults.judge(error, "").after
                elif is_refused and call.rounds and not has_started_over and await self._is_repeatable(record):
                    make, has_started_over, may_exist = call.make, True, True
                else:
                    # Who asks in rounds when a call comes again under its key has no task of it.
                    may_exist = may_exist and not (has_started_over and call.rounds)
                    self._end(call, record, error, may_exist=may_exist)
                    raise
            failures += 1
            await anyio.sleep(pace.backoff(failures, hint, self.chance()))

    async def check_repeatable(self, record: Record, cause: BaseException | None = None) -> None:
        """That a call which may have happened is the same call if it is made again. `cause`: why nobody knows.

        Raises:
            Unsure: the server does not say so of that tool, or of none, or has no such tool; or can't be asked.
        """
        if not honours_keys(self.client):
            raise Unsure(record) from cause
        found = await self._listed(record)
        if not honours_keys_of(self.client, found):
            why = "the server has no such tool" if found is None else "the tool does not honour keys"
            raise Unsure(record, why) from cause

    async def _is_repeatable(self, record: Record) -> bool:
        """The same, as a question.

        Raises:
            Unsure: the server can't be asked.
        """
        return honours_keys(self.client) and honours_keys_of(self.client, await self._listed(record))

    async def _listed(self, record: Record) -> Tool | None:
        """The tool. The server may be away just then, so the listing is asked for until there is an answer.

        Raises:
            Unsure: there will be none, or one that is no listing.
        """
        failures, grace = 0, faults.Grace()
        while True:
            try:
                return await listed(self.client, record.tool)
            except Exception as error:  # boundary: whatever the SDK makes of a server
                fault = faults.judge(error, "")
                if grace.ended(fault, anyio.current_time()) is not None or faults.is_over(error):
                    raise Unsure(record, f"its tools can't be listed: {error}") from error
            failures += 1
            await anyio.sleep(pace.backoff(failures, fault.after, self.chance()))

    def _end(self, call: Call, record: Record, error: Exception, *, may_exist: bool) -> None:
        """What is left on record of a call that came to an error.

        Raises:
            Unsure: the error does not say that there is no task.
        """
        if may_exist and call.is_asking:
            return
        if may_exist or not (call.is_asking or isinstance(error, MCPError)):
            why = "the answer is not one of the protocol" if isinstance(error, ValidationError) else str(error)
            raise Unsure(record, why) from error
        self.forget(record)

    def forget(self, record: Record) -> None:
        """There is nothing to come back to. What came of the call goes before the journal's trouble."""
        try:
            self.journal.forget(record)
        except JournalUnusable:
            logger.exception("the journal does not take that the call %s is over", record.key)

    def let_go(self, record: Record) -> None:
        """The call is not being made any more."""
        try:
            self.journal.let_go(record)
        except JournalUnusable:
            logger.exception("the journal does not take that nobody makes the call %s", record.key)
