"""The experimental tasks of revision 2025-11-25, for clients that still speak it: `Tasks(legacy=True)` (contract 10).

It is all in here: a middleware that takes what concerns tasks on connections that agreed on that very revision, and
answers by itself. The SDK knows the shapes and serves none of them, so nobody else shapes what this answers. Beneath it
are the same store, owners and limits, so that each era sees the tasks that the other one made.

Where the revisions differ, clients read their own: whoever asks for a task gets one, whatever the tool's `when` says; a
result that says `isError` makes a task `failed`; one that was asked to stop is `cancelled` from then on, whatever its
code makes of that, and `tasks/result` tells how it ended. The tool's `ttl` holds, not the one that a client asks for:
many ask for a minute because their library does, and past a ttl the work is stopped.

Questions are put to the client over the connection, one after the other, while it waits for the result. Nothing is sent
to a client that does not wait: a connection of that era may be gone any time, and another one of its client can't be
told from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from mcp.server.context import CallNext, HandlerResult
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    GetTaskRequestParams,
    InputRequiredResult,
    InputResponseRequestParams,
    PaginatedRequestParams,
)
from mcp_types.methods import serialize_server_result, validate_client_request

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId, StoreUnavailable, TaskExpired, TaskNotFound, Unreadable
from perdure.domain.model import JSON, JSONObject, Owner, Status, Task
from perdure.engine import patience
from perdure.engine.runtime import Runtime
from perdure.engine.subscription import Subscription
from perdure.tools.declaration import CALL, TaskTool, in_log, log_failure

from . import answers, render
from .calls import Calls
from .capabilities import kinds_of
from .errors import translated
from .extent import check_answers
from .identity import ANONYMOUS, Identify, is_one_of_many
from .inline import outcome
from .legacy_peer import Wire, ask_first, put, related, tell
from .models import RequestContext
from .pacing import ask, poll
from .presence import given_up, while_it_waits

__all__ = ["REVISION", "Legacy", "asks_for_task"]

REVISION: Final = "2025-11-25"
"""The one revision of the protocol that had these tasks."""

_ASKED: Final = frozenset({"name", "arguments", "task", "_meta"})
"""What a `tools/call` of that revision holds."""
_PAGE: Final = 50
"""Tasks on one page of `tasks/list`."""
_ROUNDS: Final = 10
"""How often a tool's `prepare` may ask in one call."""


class Legacy:
    """A part of the middleware. `calls`: makes tasks of calls. `check_started`: raises if the server has no store.

    `look_every`: seconds between looks whether a client that waits for an answer is still there.
    """

    def __init__(
        self,
        runtime: Runtime,
        tools: Mapping[str, TaskTool],
        calls: Calls,
        identify: Identify,
        check_started: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._tools = tools
        self._calls = calls
        self._identify = identify
        self._check_started = check_started
        self.look_every = 1.0
        self._methods: Mapping[str, Callable[[RequestContext], Awaitable[Wire]]] = {
            CALL: self._call,
            "tasks/get": self._get,
            "tasks/result": self._result,
            "tasks/list": self._list,
            "tasks/cancel": self._cancel,
        }

    def takes(self, ctx: RequestContext) -> bool:
        """Whether the request is answered here: it concerns tasks, and came over a connection of that revision."""
        if ctx.method not in self._methods or ctx.protocol_version != REVISION or not _shook_hands(ctx):
            return False
        return ctx.method != CALL or asks_for_task(ctx) or self._must_be_task(ctx)

    async def answer(self, ctx: RequestContext) -> Wire:
        """What is answered to a request that this `takes`.

        Raises:
            MCPError: as that revision has it.
            ValidationError: the parameters are wrong.
        """
        with translated:
            self._check_started()
            return await self._methods[ctx.method](ctx)

    async def announce(self, ctx: RequestContext, call_next: CallNext) -> HandlerResult:
        """Any other request: passed on. What the server and its tools say of themselves tells of tasks then."""
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        if ctx.method == "initialize" and result.get("protocolVersion") == REVISION:
            return {**result, "capabilities": {**result["capabilities"], "tasks": self._capability(ctx)}}
        if ctx.method == "tools/list" and ctx.protocol_version == REVISION:
            return {**result, "tools": [self._listed(tool) for tool in result["tools"]]}
        return result

    # -- what is said of it --------------------------------------------------------------------------------------------

    def _capability(self, ctx: RequestContext) -> Wire:
        offered: Wire = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        return {"list": {}, **offered} if self._tells_apart(ctx) else offered

    def _tells_apart(self, ctx: RequestContext) -> bool:
        """Whether the client is known. If all are one owner, a list would give each the keys to the others' tasks."""
        try:
            return self._identify(ctx) != ANONYMOUS
        except MCPError:
            return False  # whoever it is has no tasks

    def _listed(self, listed: Wire) -> Wire:
        tool = self._tools.get(listed["name"])
        if tool is None:
            return listed
        return {**listed, "execution": {"taskSupport": "required" if tool.options.mode == "task" else "optional"}}

    def _must_be_task(self, ctx: RequestContext) -> bool:
        name = (ctx.params or {}).get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        return tool is not None and tool.options.mode == "task"

    # -- making one ----------------------------------------------------------------------------------------------------

    async def _call(self, ctx: RequestContext) -> Wire:
        validate_client_request(ctx.method, REVISION, ctx.params)
        # Nothing else: a `requestState` belongs to rounds of a later revision, which are held differently here.
        asked = {name: value for name, value in (ctx.params or {}).items() if name in _ASKED}
        params = CallToolRequestParams.model_validate(asked, by_name=False)
        if params.task is None:
            raise MCPError(METHOD_NOT_FOUND, f"The tool {params.name!r} has to be called as a task")
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(METHOD_NOT_FOUND, f"There is no tool {params.name!r} that can be called as a task")
        try:
            # It may have to wait for answers.
            task = await while_it_waits(ctx, self._begin(tool, params, ctx), self.look_every)
        except ToolError as error:
            # There is no task that could fail with it, and a client that wants one can't read a tool's result.
            log_failure(in_log(tool.name), error)
            raise MCPError(INVALID_PARAMS, str(error)) from error
        return {"task": _shown(task, _kinds(ctx))}

    async def _begin(self, tool: TaskTool, params: CallToolRequestParams, ctx: RequestContext) -> Task:
        """The task that the call becomes, once the tool's `prepare` knows all that it asks.

        Raises:
            ToolError: nothing was created.
        """
        owner, kinds = self._identify(ctx), _kinds(ctx)
        for _ in range(_ROUNDS):
            begun = await self._calls.begin(tool, params, owner, ctx, kinds)
            if not isinstance(begun, InputRequiredResult):
                return begun
            answered = await ask_first(ctx, begun, kinds)
            check_answers(answered, self._runtime.options.limits.answer_values)
            given = InputResponseRequestParams.model_validate({"inputResponses": answered})
            said = {"input_responses": given.input_responses, "request_state": begun.request_state}
            params = params.model_copy(update=said)
        raise ToolError(f"Error executing tool {tool.name}: it asked {_ROUNDS} times before it began")

    # -- what there is -------------------------------------------------------------------------------------------------

    async def _get(self, ctx: RequestContext) -> Wire:
        owner, task_id = self._named(ctx)
        poller = poll(self._runtime.pace, owner, task_id)
        task = await self._runtime.store.get(owner, task_id)
        every = self._runtime.pace.interval(poller, task)
        shown = _shown(task, _kinds(ctx))
        return shown if every is None else {**shown, "pollInterval": every}

    async def _list(self, ctx: RequestContext) -> Wire:
        if not self._tells_apart(ctx):
            raise MCPError(METHOD_NOT_FOUND, "Without authentication nobody's tasks are listed", ctx.method)
        owner, kinds = self._identify(ctx), _kinds(ctx)
        ask(self._runtime.pace, owner, ctx.method)
        cursor = PaginatedRequestParams.model_validate(ctx.params or {}, by_name=False).cursor
        after = None if cursor is None else await self._number(owner, cursor)
        found = await self._runtime.store.page(owner, after, _PAGE + 1)
        more: Wire = {"nextCursor": found[_PAGE - 1].id} if len(found) > _PAGE else {}
        whole = [await self._whole(task) for task in found[:_PAGE]]
        return {"tasks": [_shown(task, kinds) for task in whole if task is not None], **more}

    async def _whole(self, task: Task) -> Task | None:
        """A task of a list, with the result or the questions that its status depends on.

        None if it was just purged, or can't be read.

        One after the other: a result may take megabytes, and a list of them must not.
        """
        if task.status not in (Status.COMPLETED, Status.INPUT_REQUIRED):
            return task
        try:
            return await self._runtime.store.get(task.owner, task.id)
        except (TaskNotFound, TaskExpired, Unreadable):
            return None

    async def _number(self, owner: Owner, cursor: str) -> int:
        """Where a page ended. The last task on it is the cursor: its own number tells how many everybody has.

        What is in that task is not read, since it may be large, or unreadable, and the list goes on all the same. Only
        if the row itself was damaged nobody can tell where it was.
        """
        try:
            task = (await self._runtime.store.changed({ids.parse(cursor): 0}, owner)).get(cursor)
        except MalformedTaskId:
            task = None
        if task is None:
            raise MCPError(INVALID_PARAMS, "Invalid cursor: list from the beginning")
        return task.seq

    async def _cancel(self, ctx: RequestContext) -> Wire:
        owner, task_id = self._named(ctx)
        ask(self._runtime.pace, owner, task_id)
        task = await self._runtime.store.get(owner, task_id)
        if not _status(task, frozenset()).terminal:
            task = await self._runtime.store.request_cancel(owner, task_id)
            if task.cancel_requested or task.status is Status.CANCELLED:
                return _shown(task, frozenset())
        raise MCPError(INVALID_PARAMS, f"The task can't be cancelled: it is {_status(task, frozenset())}")

    def _named(self, ctx: RequestContext) -> tuple[Owner, str]:
        params = GetTaskRequestParams.model_validate(ctx.params or {}, by_name=False)
        return self._identify(ctx), ids.parse(params.task_id)

    # -- waiting for the end -------------------------------------------------------------------------------------------

    async def _result(self, ctx: RequestContext) -> Wire:
        owner, task_id = self._named(ctx)
        ask(self._runtime.pace, owner, task_id)
        listening = await self._runtime.snapshots.subscribe(owner, [task_id], counted=is_one_of_many(owner))
        try:
            waiting = _Waiting(ctx, self._runtime, listening, owner, task_id)
            result = outcome(await while_it_waits(ctx, waiting.end(), self.look_every))
        finally:
            listening.close()
        if not isinstance(result.get("structuredContent", {}), dict):
            del result["structuredContent"]  # that revision has objects only; what it holds is in the content too
        told: Wire = serialize_server_result(CALL, REVISION, result)
        return {**told, "_meta": {**told.get("_meta", {}), **related(task_id)}}


class _Waiting:
    """One client that waits for the end of a task: it is asked what the task asks, and told how it stands."""

    def __init__(
        self, ctx: RequestContext, runtime: Runtime, listening: Subscription, owner: Owner, task_id: str
    ) -> None:
        self._ctx = ctx
        self._runtime = runtime
        self._listening = listening
        self._named = owner, task_id
        self._kinds = _kinds(ctx)

    async def end(self) -> Task:
        """The task once it is over.

        Raises:
            TaskNotFound, TaskExpired: there is none, or none any more.
            StoreUnavailable: the server is ending, or the store is away.
            MCPError: the client answered a question with an error, or with what does not fit. It stays open.
        """
        task = await self._news(0)
        while not task.status.terminal:
            questions = render.input_requests(task, self._kinds)
            before = _shown(task, self._kinds)
            task = await (self._ask(task, *next(iter(questions.items()))) if questions else self._news(task.version))
            await tell(self._ctx, before, _shown(task, self._kinds))
        return task

    async def _news(self, version: int) -> Task:
        """The task after `version`."""
        while (snapshot := await self._listening.next()) is not None:
            if snapshot.task.version > version:
                return snapshot.task
        task = await self._runtime.store.get(*self._named)
        if not task.status.terminal:
            raise StoreUnavailable("The server is shutting down")
        return task

    async def _ask(self, task: Task, key: str, question: JSONObject) -> Task:
        """Put a question to the client: the task once it is answered, by whomever, or open no longer.

        Whichever comes first. A question that is answered elsewhere is taken back.
        """
        asking = asyncio.create_task(put(self._ctx, question, related(task.id)))
        changing = asyncio.create_task(self._news(task.version))
        try:
            while any(each.key == key for each in task.inputs):
                await asyncio.wait({asking, changing}, return_when=asyncio.FIRST_COMPLETED)
                if not changing.done():
                    changing.cancel()  # or a change that comes during the write would be heard here, and by nobody
                    return await self._take(task, key, asking.result())
                task = changing.result()
                changing = asyncio.create_task(self._news(task.version))
            return task
        finally:
            await given_up(asking, changing)

    async def _take(self, task: Task, key: str, response: JSON) -> Task:
        async def take() -> Task:
            questions = await self._runtime.store.open_questions(task.owner, task.id)
            given = answers.check(questions, {key: response}, self._runtime.options.limits)
            return await self._runtime.store.answer(task.owner, task.id, given)

        # Somebody may have thought about it: a store that is away for a moment must not lose it.
        return await patience.persist(take)


def _shook_hands(ctx: RequestContext) -> bool:
    """Whether the client has said hello, or does not have to: over HTTP without sessions it can't be asked either."""
    return ctx.session.client_params is not None or not ctx.session.can_send_request


def asks_for_task(ctx: RequestContext) -> bool:
    """Whether the request is a call that is to become a task of this revision."""
    return ctx.method == CALL and (ctx.params or {}).get("task") is not None


def _kinds(ctx: RequestContext) -> frozenset[str]:
    """The kinds of input that the client of this connection can give."""
    return kinds_of(ctx.session.client_capabilities)


# -- as that revision has it -------------------------------------------------------------------------------------------


def _status(task: Task, kinds: frozenset[str]) -> Status:
    if task.cancel_requested:
        return Status.CANCELLED
    if task.status is Status.COMPLETED and (task.result or {}).get("isError") is True:
        return Status.FAILED
    if task.inputs and not render.input_requests(task, kinds):
        return Status.WORKING  # as in `render`: the other status promises a question
    return task.status


def _shown(task: Task, kinds: frozenset[str]) -> Wire:
    """A task as clients of that revision read it."""
    wire = render.created(task)
    message = _complaint(task) or task.message
    shown: Wire = {
        "taskId": task.id,
        "status": _status(task, kinds).value,
        "createdAt": wire["createdAt"],
        "lastUpdatedAt": wire["lastUpdatedAt"],
        "ttl": task.ttl_ms,
    }
    if message is not None:
        shown["statusMessage"] = message
    if task.poll_ms is not None:
        shown["pollInterval"] = task.poll_ms
    return shown


def _complaint(task: Task) -> str | None:
    """What a result that says `isError` has to say; None if it doesn't."""
    match task.result:
        case {"isError": True, "content": [{"type": "text", "text": str() as text}, *_]}:
            return text
        case _:
            return None
