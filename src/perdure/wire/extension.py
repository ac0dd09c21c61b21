"""The SDK `Extension` itself, and no more than the SDK asks of one: lists tools, serves `tasks/*`, takes `tools/call`.

It holds no rule of its own. What a call comes to is in `calls`, what is refused early in `guard`, what clients read in
`render`, and which server all this is for in `attachment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp_types import CallToolRequestParams
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.domain import ids
from perdure.engine.runtime import Runtime
from perdure.tools.catalog import Catalog

from . import answers, render
from .attachment import Attachment
from .calls import Calls
from .capabilities import input_kinds
from .errors import translated
from .identity import Identify
from .legacy import Legacy
from .models import EXTENSION, RequestContext, TaskParams, UpdateParams
from .pacing import ask, poll

__all__ = ["TasksExtension"]


class TasksExtension(Extension):
    """The Tasks extension of one server, over a runtime that the composition root made."""

    identifier = EXTENSION

    def __init__(
        self,
        runtime: Runtime,
        catalog: Catalog,
        attachment: Attachment,
        *,
        inline_timeout_ms: int,
        identify: Identify,
        legacy: bool,
    ) -> None:
        self._runtime = runtime
        self._catalog = catalog
        self._attachment = attachment
        self._identify = identify
        self._calls = Calls(runtime, inline_timeout_ms, lambda: attachment.server, lambda: attachment.state_lives)
        if legacy:
            old = Legacy(runtime, catalog.tools, self._calls, identify, attachment.check_started)
            attachment.middleware.legacy = old

    def settings(self) -> dict[str, Any]:
        return self._attachment.settings

    def tools(self) -> Sequence[ToolBinding]:
        return self._attachment.unlisted()

    def methods(self) -> Sequence[MethodBinding]:
        self._attachment.applied = True
        versions = frozenset(MODERN_PROTOCOL_VERSIONS)
        return (
            MethodBinding("tasks/get", TaskParams, self._get, versions),
            MethodBinding("tasks/update", UpdateParams, self._update, versions),
            MethodBinding("tasks/cancel", TaskParams, self._cancel, versions),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: RequestContext, call_next: CallNext
    ) -> HandlerResult:
        tool = self._catalog.tools.get(params.name)
        if tool is None:
            return await call_next(ctx)
        with translated:
            self._attachment.check_started()
            return await self._calls.call(tool, params, self._identify(ctx), ctx)

    # -- tasks/* -------------------------------------------------------------------------------------------------------

    # The guard has seen to it that the client declared the extension, before the parameters were looked at.

    async def _get(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        with translated:
            self._attachment.check_started()
            owner, task_id, pace = self._identify(ctx), ids.parse(params.task_id), self._runtime.pace
            poller = poll(pace, owner, task_id)
            task = await self._runtime.store.get(owner, task_id)
        kinds = input_kinds(ctx) if task.inputs else frozenset[str]()
        return render.detailed(task, kinds, self._attachment.server_info, pace.interval(poller, task))

    async def _update(self, ctx: RequestContext, params: UpdateParams) -> HandlerResult:
        owner, store = self._identify(ctx), self._runtime.store
        with translated:
            self._attachment.check_started()
            task_id = ids.parse(params.task_id)
            ask(self._runtime.pace, owner, task_id)
            questions = await store.open_questions(owner, task_id)
            # Checked against what the task asked, not stored unless it fits: a question never changes, so nothing can
            # come between.
            responses = answers.check(questions, params.input_responses, self._runtime.options.limits)
            if responses:
                await store.answer(owner, task_id, responses)
        return render.acknowledged()

    async def _cancel(self, ctx: RequestContext, params: TaskParams) -> HandlerResult:
        with translated:
            self._attachment.check_started()
            owner, task_id = self._identify(ctx), ids.parse(params.task_id)
            ask(self._runtime.pace, owner, task_id)
            await self._runtime.store.request_cancel(owner, task_id)
        return render.acknowledged()
