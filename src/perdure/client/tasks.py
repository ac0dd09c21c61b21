"""`Tasks`, the SDK `ClientExtension`: makes handles of calls, and of what the journal remembers.

The SDK gives an extension its session only where a call was answered with a task, and notifications without any. So
what belongs to a session (who watches, which server it is) is kept here by session, for as long as somebody waits.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast, get_args
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

import anyio
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import CallToolResult
from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, to_json

from perdure.domain.names import EXTENSION
from perdure.domain.policy import Duration

from .calling import Call, Created, created
from .errors import JournalUnusable, TaskError, Unsendable, Unsure
from .failpoints import reach
from .handle import TaskHandle
from .http import HTTP
from .journal import Journal, Record
from .link import Link, OnCancel
from .making import Making
from .pace import seconds
from .remote import Remote
from .snapshot import NotATask, Snapshot
from .watcher import Watcher

__all__ = ["Resumed", "Tasks", "server_of"]

logger = logging.getLogger(__name__)

_REQUEST: Final = 30.0
_NO_MORE: Final = frozenset({"lost", "expired"})


class _News(BaseModel):
    """The parameters of `notifications/tasks`, as they came."""

    model_config = ConfigDict(extra="allow")


class _Ear:
    """What one client hears by, and its session keeps: who counts them knows how many servers may be speaking."""

    def __init__(self, told: Callable[[_News], Awaitable[None]]) -> None:
        self._told = told

    async def __call__(self, news: _News) -> None:
        await self._told(news)


@dataclass(frozen=True, slots=True)
class Resumed:
    """What `resume_all` found.

    Attributes:
        handles: tasks that go on.
        unsure: calls of which nobody knows whether they happened.
        refused: calls that could not be made again, and why: `InputDeclined`, or whatever a callback raised. They stay
            on record.
        lost: tasks that the server does not know, or keeps from who it takes this client for: another token may help.
            They stay on record for 90 days, and are asked for once by each `resume_all`; `Journal.forget` ends that.
    """

    handles: tuple[TaskHandle, ...]
    unsure: tuple[Unsure, ...]
    refused: tuple[tuple[Record, Exception], ...] = ()
    lost: tuple[TaskHandle, ...] = ()


class Tasks(ClientExtension):
    """Tasks for `mcp.Client(…, extensions=[tasks])`.

    `client.call_tool` then returns the final result also where the server makes a task of the call: its questions are
    answered by the client's own callbacks. `start` returns a handle instead, and survives this process, if there is a
    journal on the disk.

    Args:
        journal: a file, or a `Journal`; None keeps it in memory.
        listen: False polls even where the server could tell.
        on_cancel: what becomes of a task whose `call_tool` or `result` is cancelled: `"leave"` it, or `"cancel"` it.
        timeout: seconds that `call_tool` waits for a task at most; None: for ever.
        request_timeout: seconds that one request about a task has. `call_tool(read_timeout_seconds=…)` goes before it.
        server: the name in the journal of the server that this is for, in place of its URL or command.
        chance: draws from 0 to 1; spreads polls and retries.

    One of these may be passed to one client after another, and to several at once. Servers that must not hear of each
    other's tasks get a `Tasks` each (SECURITY.md says why).
    """

    identifier = EXTENSION

    def __init__(
        self,
        journal: Journal | str | os.PathLike[str] | None = None,
        *,
        listen: bool = True,
        on_cancel: OnCancel = "leave",
        timeout: Duration | None = None,
        request_timeout: Duration = _REQUEST,
        server: str | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        if on_cancel not in get_args(OnCancel):
            raise ValueError(f"on_cancel is one of {', '.join(get_args(OnCancel))}, and not {on_cancel!r}")
        self.journal = journal if isinstance(journal, Journal) else Journal(journal)
        self._listen = listen
        self._on_cancel: OnCancel = on_cancel
        self._timeout = seconds(timeout)
        self._request_timeout = seconds(request_timeout, "request_timeout") or _REQUEST
        self._server = server
        self._chance = chance
        self._names: WeakKeyDictionary[ClientSession, str] = WeakKeyDictionary()
        self._watchers: dict[ClientSession, Watcher] = {}
        self._ears: WeakSet[_Ear] = WeakSet()
        self._deaf: WeakSet[ClientSession] = WeakSet()

    # -- what the SDK asks for -----------------------------------------------------------------------------------------

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """See `ClientExtension`."""
        return [ResultClaim(result_type="task", model=Created, resolve=self._resolve)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        """See `ClientExtension`."""
        ear = _Ear(self._told)
        self._ears.add(ear)
        return [NotificationBinding(method="notifications/tasks", params_type=_News, handler=ear)]

    async def _resolve(self, answer: Created, ctx: ClaimContext) -> CallToolResult:
        known = created(answer)
        name = self._names.get(ctx.session) or self._server or _name_only(ctx.session)
        link = self._link(ctx.session, ctx.read_timeout_seconds)
        handle = self._handle(link, ctx.tool_name, known, lambda: self.journal.adopt(name, ctx.tool_name, known.id))
        return await handle.result(self._timeout)

    async def _told(self, news: _News) -> None:
        said = news.model_extra or {}
        try:
            snapshot = Snapshot.parse(said)
        except NotATask:
            return
        meta: object = said.get("_meta")
        subscription = cast("dict[str, object]", meta).get(SUBSCRIPTION_ID_META_KEY) if isinstance(meta, dict) else None
        # Nothing says which session it came by, and one server must not speak for another.
        trusted = len(self._ears) == 1
        for watcher in [*self._watchers.values()]:
            watcher.told(snapshot, subscription if isinstance(subscription, str | int) else None, trusted=trusted)

    # -- handles -------------------------------------------------------------------------------------------------------

    async def start(
        self,
        client: Client,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,  # noqa: ASYNC109
        meta: Mapping[str, Any] | None = None,
    ) -> TaskHandle:
        """Call a tool, and return once its task is known and on record; or its result, if the server answers at once.

        Questions that the server asks before that go to the client's callbacks. What they say is sent again while the
        server has no room for it, and otherwise in one more call where the tool honours keys; nobody is asked again.
        Under a key that is on record this is the call from before: its handle, if it is known, else what `resume` does.

        A result is handed over as it was sent: unlike `call_tool` this does not hold it against the tool's output
        schema, nor list tools for that. `client.session.validate_tool_result(name, result)` does.

        Args:
            client: that these `Tasks` were passed to, and that is connected.
            name: the tool's.
            arguments: the tool's.
            idempotency_key: by which a server that honours keys of this tool knows the call again. By default one that
                is drawn. A tool whose listing does not say so (an ordinary tool of a Perdure server, say) runs at each
                call, whatever the key; but while it is on record here, no second call is made under it.
            timeout: seconds, of all together, with the user's time; None: for ever. Each request of the call has the
                client's `read_timeout_seconds`, 300 s if that is None: for longer tools without a task, set it.
            meta: what else goes along in `_meta`. It is not on record.

        Raises:
            Unsure: nobody knows whether the call happened; it is on record, for `resume`.
            InputDeclined: a callback had no answer. There is no task, and no record, if the call is new.
            Unsendable: the arguments have no JSON form. Nothing was called.
            MCPError: the server's answer. Likewise.
            KeyReused: the key is on record for another tool or other arguments. Nothing was called.
            JournalUnusable: the call can't be put on record, and was not made.
        """
        within, key = seconds(timeout), uuid4().hex if idempotency_key is None else idempotency_key
        _check_sendable([name, key, arguments, meta])
        until = None if within is None else anyio.current_time() + within
        record, is_new = self.journal.intend(self._name(client), name, key, arguments)
        is_mine = is_new
        if is_new:
            reach("call intended")
        elif record.status in _NO_MORE:
            with anyio.move_on_after(within) as scope:
                record, is_mine = await self._renewed(client, record, arguments)
            if scope.cancelled_caught:
                raise Unsure(record, "the server did not say in time whether its key is free again")
        left = None if until is None else max(0.0, until - anyio.current_time())
        return await self._handled(client, record, left, meta, is_new=is_new, is_mine=is_mine)

    async def resume(self, client: Client, id: str, *, timeout: Duration | None = None) -> TaskHandle:  # noqa: ASYNC109
        """The handle of a task, by its id or by the idempotency key of its call. Nothing is called twice.

        A task that the journal does not know is taken as it is. A call of which no answer is on record is made again,
        under its key, if the server says, in its tool's listing too, that it honours keys; while another process makes
        it, that is waited for.

        Raises:
            Unsure: it does not say so, or says nothing by which one could tell; whatever it said is the cause.
            InputDeclined: a callback had no answer. The call stays on record.
        """
        name = self._name(client)
        within = seconds(timeout)
        record = self.journal.find(name, id) or self.journal.find(_name_only(client.session), id)
        if record is None:
            record = self.journal.adopt(name, "", id)
        return await self._handled(client, record, within)

    async def resume_all(self, client: Client, *, timeout: Duration | None = None) -> Resumed:  # noqa: ASYNC109
        """Everything on record of this server that is not known to be over, but for calls that are just being made.

        Calls of which no answer is on record are made again where that is safe, side by side, in `timeout` seconds at
        most (None: for ever). A call that comes to an error, or to none in that time, keeps nobody from the others.
        """
        within = seconds(timeout)
        names = dict.fromkeys((self._name(client), _name_only(client.session)))
        records = [each for name in names for each in self.journal.records(name) if each.status in (None, "lost")]
        records.sort(key=lambda each: each.number)
        found: dict[int, TaskHandle | Exception] = {}
        lost: set[int] = set()

        async def one(record: Record) -> None:
            try:
                handle = found[record.number] = await self._handled(client, record, within)
                if record.status == "lost" and not await self._is_known(handle, within):
                    lost.add(record.number)
            except Exception as error:  # noqa: BLE001 - boundary: callbacks
                found[record.number] = error

        async with anyio.create_task_group() as group:
            for record in records:
                if not self.journal.is_busy(record):
                    group.start_soon(one, record)
        came = [(record, found[record.number]) for record in records if record.number in found]
        return Resumed(
            tuple(each for one, each in came if isinstance(each, TaskHandle) and one.number not in lost),
            tuple(each for _, each in came if isinstance(each, Unsure)),
            tuple((record, each) for record, each in came if not isinstance(each, TaskHandle | Unsure)),
            tuple(each for one, each in came if isinstance(each, TaskHandle) and one.number in lost),
        )

    async def _is_known(self, handle: TaskHandle, within: float | None) -> bool:
        """Whether the server knows the task that it did not know when it was last asked."""
        with anyio.move_on_after(within), suppress(TaskError):
            await handle.status()
            return True
        return False

    async def _renewed(
        self, client: Client, record: Record, arguments: Mapping[str, Any] | None
    ) -> tuple[Record, bool]:
        """The call under a key that is free again, its task being no more, and whether it is this caller's to make.

        As it is on record: there is the task; or the server would take a call under that key for another.
        """
        if record.status != "lost" or not await self._is_known(TaskHandle(self._link(client.session), record), None):
            with suppress(Unsure):
                await Making(client, self.journal, self._chance).check_repeatable(record)
                return self.journal.renew(record, arguments)
        return record, False

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _handled(
        self,
        client: Client,
        record: Record,
        timeout: float | None,  # noqa: ASYNC109
        meta: Mapping[str, Any] | None = None,
        *,
        is_new: bool = False,
        is_mine: bool = False,
    ) -> TaskHandle:
        """The handle of what is on record, if it has to be, by making the call. `is_mine`: it is this caller's."""
        making = Making(client, self.journal, self._chance)
        with anyio.move_on_after(timeout):
            if not is_mine:
                record = await making.taken(record)
            if record.task_id is not None:
                return TaskHandle(self._link(client.session), record)
            try:
                return await self._made(making, record, dict(meta or {}), is_new=is_new)
            finally:
                making.let_go(record)
        raise Unsure(record)

    async def _made(self, making: Making, record: Record, meta: dict[str, Any], *, is_new: bool) -> TaskHandle:
        call = Call(making.client, self.journal, record, meta)
        answer = await making.answer(call, record, may_exist=not is_new)
        link = self._link(making.client.session)
        if isinstance(answer, CallToolResult):
            making.forget(record)
            return TaskHandle(link, record, settled=answer)
        reach("call answered")
        handle = self._handle(link, record.tool, answer, lambda: self.journal.put_handle(record, answer.id, call.spent))
        reach("handle recorded")
        return handle

    def _handle(self, link: Link, tool: str, known: Snapshot, put: Callable[[], Record]) -> TaskHandle:
        """The handle of a task that there is now, whatever the journal says to that."""
        try:
            return TaskHandle(link, put(), known)
        except JournalUnusable:
            logger.exception("the task %s is not on record, and is lost if this process ends", known.id)
            spare = Journal()
            adopted = spare.adopt("", tool, known.id)
            return TaskHandle(replace(link, journal=spare), adopted, known, is_on_record=False)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _name(self, client: Client) -> str:
        name = self._server or server_of(client)
        self._names[client.session] = name
        return name

    def _link(self, session: ClientSession, timeout: float | None = None) -> Link:
        remote = Remote(session, self._request_timeout if timeout is None else timeout)
        return Link(remote, self.journal, lambda: self._watcher(session), self._on_cancel, self._chance)

    def _watcher(self, session: ClientSession) -> Watcher:
        """The one of a session. Its requests are everybody's who waits, so no single caller's bound holds for them."""
        found = self._watchers.get(session)
        if found is None:

            def idle(*, deaf: bool) -> None:
                self._watchers.pop(session, None)
                if deaf:
                    self._deaf.add(session)

            listens = self._listen and session not in self._deaf
            remote = Remote(session, self._request_timeout)
            found = self._watchers[session] = Watcher(remote, listens=listens, chance=self._chance, idle=idle)
        return found


def server_of(client: Client) -> str:
    """The name of a client's server in the journal.

    Its URL without credentials and query (which may hold a key), its command, or, of anything else, what it calls
    itself.
    """
    match client.server:
        case str(url) | HTTP(url=url):
            head, _, rest = re.split("[?#]", url)[0].partition("://")
            authority, slash, path = rest.partition("/")
            return f"{head}://{authority.rpartition('@')[2]}{slash}{path}"
        case StdioServerParameters(command=command, args=arguments):
            return f"stdio:{shlex.join([command, *arguments])}"
        case _:
            return _name_only(client.session)


def _check_sendable(call: list[object]) -> None:
    """Before it is on record.

    Raises:
        Unsendable: it has no JSON form.
    """
    try:
        to_json(call)
    except (PydanticSerializationError, ValueError) as error:
        raise Unsendable(f"The call can't be sent: {error}") from error


def _name_only(session: ClientSession) -> str:
    info = session.server_info
    return f"name:{'' if info is None else info.name}"
