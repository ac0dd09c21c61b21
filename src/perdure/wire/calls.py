"""What a `tools/call` of a task tool comes to: a task, a result, or a question first.

The order is the contract's. The capability is judged before anything else; the arguments before anything is asked; all
rounds of input before there is a task; and the handle leaves only once the task is durable (contract 2).

A call that was made before under the same idempotency key is answered by what there is, before all of that: the client
only asks again for what it was promised. A new one is refused while too many tasks wait, before anything is stored.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pydantic_core
from mcp.server.context import HandlerResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolRequestParams, InputRequiredResult
from pydantic import ValidationError
from pydantic_core import to_json

from perdure.domain import ids
from perdure.domain.errors import LimitExceeded, NotStorable
from perdure.domain.limits import within
from perdure.domain.model import JSON, JSONObject, NewTask, Owner, Task
from perdure.engine.runtime import Runtime
from perdure.store.codec import decode, encode
from perdure.tools.declaration import TaskTool, error_result, in_log, log_failure
from perdure.tools.steps import complaint

from . import idempotency, render
from .capabilities import declares_tasks, input_kinds
from .errors import missing_extension
from .identity import is_one_of_many
from .inline import Caller, Inline
from .models import RequestContext
from .pacing import ask

__all__ = ["Calls", "new_task"]


class Calls:
    """Serves calls of task tools. All times and options are the tool's.

    `inline_timeout_ms` bounds the wait of each request that a tool runs inside of. `server` says which server it is,
    which is not known yet when tools are declared; `state_lives`, for how many seconds the state of a request is good
    there.
    """

    def __init__(
        self,
        runtime: Runtime,
        inline_timeout_ms: int,
        server: Callable[[], MCPServer[Any] | None],
        state_lives: Callable[[], float | None],
    ) -> None:
        self._runtime = runtime
        self._inline = Inline(runtime, inline_timeout_ms, state_lives)
        self._server = server

    async def call(
        self, tool: TaskTool, params: CallToolRequestParams, owner: Owner, ctx: RequestContext
    ) -> HandlerResult:
        """The result of one call.

        Raises:
            MCPError: -32021 for a tool that must be a task and a client that knows none, -32602 for a bad idempotency
                key, and what `prepare` or the inline task raise.
            IdempotencyKeyReused: the key was used for another call.
            LimitExceeded: the arguments are too large.
            BacklogFull, StoreUnavailable: nothing was created.
        """
        declared = declares_tasks(ctx)
        if tool.options.mode == "task" and not declared:
            raise missing_extension()
        key = idempotency.read(params, self._runtime.options.limits)
        caller = Caller(tool.name, input_kinds(ctx), declared, _shows_progress(ctx))
        if params.request_state is not None and self._inline.owns(params.request_state):
            return await self._inline.carry_on(owner, params.request_state, params.input_responses, caller)
        known = None if key is None else await self._recall(owner, key)
        if known is not None:
            return render.created(known) if declared else await self._inline.join(known, caller)
        arguments = self._arguments(params)
        try:
            as_task = tool.wants_task(tool.validate(arguments)) and declared
            prepared = await self._prepare(tool, arguments, params, ctx)
        except ToolError as error:
            log_failure(in_log(tool.name), error)
            return error_result(str(error))
        if isinstance(prepared, InputRequiredResult):
            return prepared
        await self._admit(owner)
        new = new_task(tool, arguments, prepared, owner, caller.kinds, key)
        if not as_task:
            return await self._inline.start(new, caller)
        return render.created(await self._runtime.backlog.create(new))

    async def begin(
        self, tool: TaskTool, params: CallToolRequestParams, owner: Owner, ctx: RequestContext, kinds: frozenset[str]
    ) -> Task | InputRequiredResult:
        """The task of one call whose client asks for one, whatever `when` says, and can give input of `kinds`.

        Raises:
            ToolError: the arguments don't fit, or `prepare` refused them.
            MCPError, IdempotencyKeyReused, LimitExceeded, BacklogFull, StoreUnavailable: as `call`.
        """
        key = idempotency.read(params, self._runtime.options.limits)
        known = None if key is None else await self._recall(owner, key)
        if known is not None:
            return known
        arguments = self._arguments(params)
        tool.validate(arguments)
        prepared = await self._prepare(tool, arguments, params, ctx)
        if isinstance(prepared, InputRequiredResult):
            return prepared
        await self._admit(owner)
        return await self._runtime.backlog.create(new_task(tool, arguments, prepared, owner, kinds, key))

    async def _recall(self, owner: Owner, key: idempotency.Key) -> Task | None:
        """The task that an earlier call under the key created.

        Raises:
            PolledTooOften: there were too many calls under it.
            IdempotencyKeyReused, StoreUnavailable: as `Store.recall`.
        """
        ask(self._runtime.pace, owner, f"key {key.text}")
        return await self._runtime.store.recall(owner, key.text, key.digest)

    async def _admit(self, owner: Owner) -> None:
        """Count one task more.

        Raises:
            BacklogFull: one task more is too many.
            StoreUnavailable: nobody can tell.
        """
        await self._runtime.backlog.admit(owner, counted=is_one_of_many(owner))

    def _arguments(self, params: CallToolRequestParams) -> dict[str, Any]:
        """Of a call that is new. The guard has seen to it that they have a JSON form.

        Raises:
            LimitExceeded: they are too large.
        """
        arguments: dict[str, Any] = params.arguments or {}
        limit = self._runtime.options.limits.arguments
        within("The whole of the arguments", len(to_json(arguments)), limit, "arguments")
        return arguments

    async def _prepare(
        self, tool: TaskTool, arguments: dict[str, Any], params: CallToolRequestParams, ctx: RequestContext
    ) -> JSON | InputRequiredResult:
        """What the tool's `prepare` returned, as JSON; or what it wants answered first, in the SDK's own rounds."""
        if tool.options.prepare is None:
            return None
        context: Context[Any, Any] = Context(request_context=ctx, mcp_server=self._server(), input_params=params)
        try:
            value = await tool.options.prepare.run(arguments, context)
        except ToolError as error:
            refused = error.__cause__
            if isinstance(refused, ValidationError) and not isinstance(error, UnexpectedToolError):
                raise _unfit(tool, refused) from error
            raise
        return value if isinstance(value, InputRequiredResult) else self._storable(tool, value)

    def _storable(self, tool: TaskTool, value: object) -> JSON:
        """What `prepare` returned, as the task will find it.

        Raises:
            UnexpectedToolError: it has no JSON form, or is too large. The tool's fault, not its caller's.
        """
        try:
            text = encode(cast("JSON", pydantic_core.to_jsonable_python(value)))
            limit = self._runtime.options.limits.arguments
            within(f"What the prepare function of {tool.name} returned", len(text.encode()), limit, "arguments")
            return decode(text)
        except (LimitExceeded, NotStorable, pydantic_core.PydanticSerializationError, ValueError) as error:
            raise UnexpectedToolError(f"Error executing tool {tool.name}") from error


def _unfit(tool: TaskTool, error: ValidationError) -> ToolError:
    """What `prepare` has against the arguments, as if the tool had: clients know of no other function."""
    text = complaint(error).replace(error.title, f"{tool.name}Arguments", 1)
    return ToolError(f"Error executing tool {tool.name}: {text}")


def _shows_progress(ctx: RequestContext) -> Callable[[int, str], Awaitable[None]]:
    """Shows messages as progress of the request; the SDK drops them if it carries no token."""

    async def show(count: int, message: str) -> None:
        await ctx.session.report_progress(count, message=message)

    return show


def new_task(
    tool: TaskTool,
    arguments: dict[str, Any],
    prepared: JSON,
    owner: Owner,
    accepts: frozenset[str],
    key: idempotency.Key | None = None,
) -> NewTask:
    """The task that a call of `tool` becomes."""
    params: JSONObject = (
        {"arguments": arguments} if prepared is None else {"arguments": arguments, "prepared": prepared}
    )
    options = tool.options
    return NewTask(
        id=ids.mint(secrets.token_bytes),
        owner=owner,
        operation=tool.operation(params, accepts),
        ttl_ms=options.ttl_ms,
        keep_ms=options.keep_ms,
        poll_ms=options.poll_ms,
        max_attempts=options.max_attempts,
        timeout_ms=options.timeout_ms,
        key=None if key is None else key.text,
        digest=None if key is None else key.digest,
    )
