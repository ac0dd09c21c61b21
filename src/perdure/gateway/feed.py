"""What one backend has to say on one client's stream, for as long as that takes.

It listens there. When the stream breaks off, or the backend can't listen to tasks, it asks for each task by `tasks/get`
as often as the backend wants that, and listens again after a while, each time a longer one. So the loss of one backend
is a loss of promptness, and nothing that other backends have to say waits for it. What came meanwhile of the core's
kinds is lost: after such a gap each of them is said to have changed, which makes clients look.

Snapshots come from streams, from polls, and from streams again, and from polls beside a stream that says nothing. What
is older than what was passed on last is left out, and so is what says the same (`beside`).
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

from perdure.domain.model import JSONObject
from perdure.domain.routing import Route

from . import changes, own
from .backends import Asker, Backend
from .beside import POLL, Beside, Followed
from .changes import Change
from .faults import BackendBroken, BackendTimeout, Fault
from .rawjson import encode
from .routing import Routing
from .snapshots import interval_of, status_of

__all__ = ["ACKNOWLEDGED", "LISTEN", "TASKS", "Feed", "Said"]

logger = logging.getLogger(__name__)

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
TASKS: Final = "notifications/tasks"

_ACK_WITHIN: Final = 10.0
"""Seconds that a backend has to acknowledge."""
_GET_WITHIN: Final = 30.0
"""Seconds that a poll may take: nobody waits for it but this feed."""
_FIRST: Final = 1.0
_LONGEST: Final = 30.0
"""Seconds between two tries to listen."""
_STEADY: Final = 10.0
"""Seconds of a stream after which the next pause is a short one again."""
_NEVER: Final = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY})
"""What a backend answers that has no such streams."""

Said = Callable[[JSONObject, Route | None], Awaitable[None]]
"""Where notifications go, with the route of the task that they are about."""


@dataclass(eq=False, slots=True)
class Feed:
    """One backend's part: either `tasks`, by the backend's ids, or `core`, what is asked of the core's kinds.

    Not both in one, since a backend may be able to listen to the one and not to the other.

    `acknowledged` is set once it is known what the backend takes part in; nothing is said before `released`. `gap`:
    whether something may have been said that nobody has heard here.
    """

    backend: Backend
    asker: Asker
    meta: JSONObject
    routing: Routing
    tasks: Mapping[str, Route]
    core: JSONObject
    say: Said
    changed: Callable[[Change], None]
    acknowledged: anyio.Event = field(default_factory=anyio.Event)
    released: anyio.Event = field(default_factory=anyio.Event)
    honored: JSONObject = field(default_factory=dict[str, Any])
    gap: bool = False
    _open: dict[str, Followed] = field(default_factory=dict[str, Followed])
    _saying: anyio.Lock = field(default_factory=lambda: anyio.Lock(fast_acquire=True))
    _pause: float = _FIRST
    _can_listen: bool = True

    def __post_init__(self) -> None:
        self._open = {theirs: Followed(route) for theirs, route in self.tasks.items()}

    @property
    def accepted(self) -> frozenset[str]:
        """The gateway's ids of the tasks that are not found to be gone."""
        return frozenset(task.route.id for task in self._open.values())

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to come."""
        return not (self._open or self.core)

    async def run(self, beside: TaskGroup) -> None:
        """Say all there is to say, and end with it. `beside`: where to ask for what a stream does not say.

        Raises:
            Exception: what `say` raises.
        """
        while not self.is_over:
            began = anyio.current_time()
            try:
                if self._can_listen:
                    await self._listen(beside)
            except Fault as fault:
                if (more := self.backend.upstream.seldom.due(f"broke off: {type(fault).__name__}")) is not None:
                    logger.info("a stream of the backend %s broke off: %s%s", self.backend.name, fault, more)
            await self._begin()
            if self.is_over:
                return
            self.gap = True
            lasted = anyio.current_time() - began
            self._pause = _FIRST if lasted > _STEADY else self._pause
            pause = self._pause * random.uniform(0.5, 1) if self._can_listen else math.inf  # noqa: S311 - no secret
            self._pause = min(_LONGEST, self._pause * 2)
            await self._poll_for(pause)

    async def _begin(self) -> None:
        """Whatever happens, it is known from now on what can be taken part in; the core's kinds are hoped for."""
        if not self.acknowledged.is_set():
            self.honored = self.core
            self.acknowledged.set()
        await self.released.wait()

    # Listening -------------------------------------------------------------------------------------------------------

    async def _listen(self, beside: TaskGroup) -> None:
        asked: JSONObject = dict(self.core)
        if self._open:
            asked["taskIds"] = [*self._open]
        message, headers = own.request(LISTEN, {"notifications": asked, "_meta": self.meta})
        with anyio.CancelScope(deadline=anyio.current_time() + _ACK_WITHIN) as scope:
            headers |= await self.backend.passing.headers(self.asker.owner, self.asker.token)
            stream = self.backend.upstream.stream(message, headers, deadline=math.inf, lane=self.asker.owner)
            async with stream as exchange:
                if not exchange.is_stream:
                    self._judge(cast("JSONObject", await exchange.body()))
                    return
                async with aclosing(exchange.events()) as events:
                    first: JSONObject = await anext(events, cast("JSONObject", {}))
                    if not await self._acknowledge(first):
                        return
                    scope.deadline = math.inf
                    await self._begin()
                    await self._say_that_all_changed()
                    with Beside(self._open, self._poll, beside, scope):
                        async for each in events:
                            if "method" in each:
                                await self._heard(each)
                            if self.is_over:
                                return
            return
        if not self.is_over:
            raise BackendTimeout(self.backend.name, begun=False, counts=False)

    def _judge(self, response: JSONObject) -> None:
        """Why there is no stream, or not any more: an error may say that there never will be one."""
        error = response.get("error")
        if isinstance(error, dict) and error.get("code") in _NEVER:
            self._can_listen = False
            self.core = {}

    async def _acknowledge(self, first: JSONObject) -> bool:
        """Learn what the backend takes part in. False: there is nothing to listen to."""
        if "method" not in first:
            self._judge(first)
            return False
        honored = self._params(first).get("notifications")
        if first.get("method") != ACKNOWLEDGED or not isinstance(honored, dict):
            raise BackendBroken(self.backend.name, "its stream does not begin with an acknowledgement")
        accepted = honored.get("taskIds")
        known = {each for each in accepted if isinstance(each, str)} if isinstance(accepted, list) else set[str]()
        for theirs, task in [*self._open.items()]:
            task.listened = theirs in known
            if not task.listened:
                await self._look(theirs)
        self._can_listen = bool(self.core) or any(task.listened for task in self._open.values())
        if not self.acknowledged.is_set():
            self.core = self.honored = changes.honored(self.core, honored)
            self.acknowledged.set()
        return self._can_listen and not self.is_over

    async def _look(self, theirs: str) -> None:
        """Whether a task that was not accepted is there at all: not every backend can listen to tasks."""
        if await self._get(theirs) is None:
            self._open.pop(theirs, None)

    async def _heard(self, message: JSONObject) -> None:
        method, params = message["method"], self._params(message)
        if method == TASKS:
            theirs = params.get("taskId")
            if isinstance(theirs, str):
                await self._snapshot(theirs, params)
        elif method == changes.UPDATED and params.get("uri") in changes.uris(self.core):
            await self.say(message, None)
        for change in changes.FLAGS.values():
            if method == change.method:
                await self._list_changed(change)

    def _params(self, message: JSONObject) -> JSONObject:
        params = message.get("params", {})
        if not isinstance(params, dict):
            raise BackendBroken(self.backend.name, "a notification's parameters are no object")
        return params

    async def _list_changed(self, change: Change) -> None:
        self.changed(change)
        if self.core.get(change.flag) is True:
            await self.say({"jsonrpc": "2.0", "method": change.method, "params": {}}, None)

    async def _say_that_all_changed(self) -> None:
        if not self.gap:
            return
        self.gap = False
        for change in changes.flagged(self.core):
            await self._list_changed(change)
        for uri in changes.uris(self.core):
            await self.say({"jsonrpc": "2.0", "method": changes.UPDATED, "params": {"uri": uri}}, None)

    # Snapshots -------------------------------------------------------------------------------------------------------

    async def _snapshot(self, theirs: str, params: JSONObject) -> None:
        """Pass one on, if it is of a task that was asked for, and news."""
        async with self._saying:  # a stream and who asks beside it may have the same to say
            task = self._open.get(theirs)
            if task is None:
                return
            if (status := status_of(params)) is None:
                raise BackendBroken(self.backend.name, "a snapshot has no status")
            if (interval := interval_of(params)) is not None:
                task.every = interval
            task.heard_of()
            seen, bare = _instant(params.get("lastUpdatedAt")), {k: v for k, v in params.items() if k != "_meta"}
            body = hash(encode(bare))
            if not task.is_news(seen, body, over=status.terminal):
                return
            await self.routing.note(task.route, params)
            with anyio.CancelScope(shield=True):  # the end of a time of polling may not come between these
                await self.say({"jsonrpc": "2.0", "method": TASKS, "params": params}, task.route)
                task.seen, task.body = seen or task.seen, body
                if status.terminal:
                    del self._open[theirs]

    # Polling ---------------------------------------------------------------------------------------------------------

    async def _poll_for(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self._open:
                theirs, task = min(self._open.items(), key=lambda each: each[1].due)
                await anyio.sleep_until(task.due)
                task.due = anyio.current_time() + task.every
                await self._poll(theirs, task)
            if self.core:
                await anyio.sleep_forever()

    async def _poll(self, theirs: str, task: Followed) -> None:
        try:
            snapshot = await self._get(theirs)
            if snapshot is None:
                self._open.pop(theirs, None)
                return
            await self._snapshot(theirs, snapshot)
        except Fault as fault:  # nonsense too: it is one task's, and others are told of on the same stream
            wait = POLL if fault.retry_after_ms is None else fault.retry_after_ms / 1000
            task.due = anyio.current_time() + max(wait, task.every)
        else:
            task.due = anyio.current_time() + task.every
        task.heard_of()
        task.silent = max(task.silent, task.due)

    async def _get(self, theirs: str) -> JSONObject | None:
        """What a task is like now; None: there is no such task any more.

        Raises:
            Fault: nobody says.
        """
        params: JSONObject = {"taskId": theirs, "_meta": self.meta}
        message = await self.backend.ask("tasks/get", params, self.asker, name=theirs, within=_GET_WITHIN)
        error, result = message.get("error"), message.get("result")
        if isinstance(error, dict):
            if error.get("code") == INVALID_PARAMS:
                return None
            raise BackendBroken(self.backend.name, "it can't say how a task is", counts=False)
        snapshot = cast("JSONObject", result)
        if snapshot.get("taskId") != theirs:
            raise BackendBroken(self.backend.name, "it answered with another task")
        return {name: value for name, value in snapshot.items() if name not in ("resultType", "_meta")}


def _instant(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else None
