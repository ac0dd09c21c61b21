"""What a worker calls for one task tool: runs its function over the run, and turns what comes out into an outcome.

Raised exceptions are tool errors (`completed`, `isError`), `MCPError` is a protocol error (`failed`), and the text of
an exception that nobody anticipated stays on the server (contract 3, and the SDK's own rule). A step that failed counts
as what it failed with, also in a later run. Before any of that, the tool's `retry` may take the error up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perdure.domain.errors import (
    InputKeyReused,
    InvalidDuration,
    JournalMismatch,
    LeaseLost,
    LimitExceeded,
    NotStorable,
    StepFailed,
    StepInterrupted,
)
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.limits import cut
from perdure.domain.model import JSON, Completed, Failed, Failure, JSONObject, Outcome
from perdure.engine.handler import Again, Placement
from perdure.engine.run import Run
from perdure.store.codec import encode, mended

from .context import TaskContext
from .declaration import TaskTool, error_result, in_log, log_failure
from .retrying import again, original
from .sync_context import SyncTaskContext

__all__ = ["ToolHandler"]

logger = logging.getLogger(__name__)

_RELATED_TASK = "io.modelcontextprotocol/related-task"


class ToolHandler:
    """The handler of one tool, in one version of its code. `state` gives what the server's lifespan yielded."""

    def __init__(self, tool: TaskTool, state: Callable[[], object]) -> None:
        self._tool = tool
        self._state = state
        self._context = TaskContext if tool.sdk.is_async else SyncTaskContext

    @property
    def threaded(self) -> bool:
        return not self._tool.sdk.is_async

    @property
    def placement(self) -> Placement:
        options = self._tool.options
        return Placement(options.queue, options.priority, options.concurrency)

    async def __call__(self, run: Run, params: JSONObject) -> Outcome | Again:
        try:
            return await self._run(run, params)
        finally:
            # The task fails with it, whatever came out. A reused key was logged where it was used.
            if run.bug is not None and not isinstance(run.bug, InputKeyReused):
                logger.error("%s: %s", self._in_log(run), run.bug)

    async def _run(self, run: Run, params: JSONObject) -> Outcome | Again:
        context = self._context(run, params.get("prepared"), self._state())  # pyright: ignore[reportCallIssue] - inherited
        arguments = cast("dict[str, Any]", params["arguments"])
        try:
            result = await self._tool.sdk.run(arguments, context, convert_result=True)
        except MCPError as error:
            told = Failure(error.error.code, mended(error.error.message), error.error.data)
            return self._again(run, error) or self._protocol_error(run, told)
        except ToolError as error:
            return self._again(run, _judged(error)) or self._failed_tool(run, error)
        except BaseException as error:
            # `Parked`, or what a task group wrapped it in, is no crash; nor is a cancellation that somebody asked for.
            if run.parked or run.bug or (run.stopping and isinstance(error, asyncio.CancelledError)):
                raise
            # The rest is, `SystemExit` and its kind included, which would stop the server and not the tool.
            return self._again(run, error) or self._crashed(run, error)
        await _conclude(run)
        return self._completed(run, result)

    def overrun(self, run: Run) -> Outcome | Again:
        deadline_at = run.claim.deadline_at
        limit = "in time" if deadline_at is None else f"within {(deadline_at - run.claim.at) / 1000:g} s"
        error = TimeoutError(f"The tool did not finish {limit}")
        again = self._again(run, error)
        if again is None:
            logger.warning("%s did not finish %s", self._in_log(run), limit)
        return again or self._error(run, str(error))

    # -- once more -----------------------------------------------------------------------------------------------------

    def _again(self, run: Run, error: BaseException | None) -> Again | None:
        retry = self._tool.options.retry
        if retry is None or error is None or run.bug:
            return None
        decided = again(retry, error, run.claim, frozenset(run.once), run.chance(), run.come_to_since)
        if decided is not None:
            tool, attempt, pause = self._in_log(run), run.claim.attempt, decided.delay_ms / 1000
            why = " ".join(decided.note.split())
            logger.warning("%s failed in attempt %d, and is tried again in %g s: %s", tool, attempt, pause, why)
            logger.debug("%s failed in attempt %d", tool, attempt, exc_info=error)
        return decided

    # -- what came out -------------------------------------------------------------------------------------------------

    def _completed(self, run: Run, result: CallToolResult | InputRequiredResult) -> Outcome:
        if isinstance(result, InputRequiredResult):
            logger.error("%s returned an InputRequiredResult, which a task can't", self._in_log(run))
            return self._error(run, f"Error executing tool {self._tool.name}")
        try:
            # The SDK's dump turns NaN and infinities into null, which no output schema of numbers allows. This one
            # keeps them, so that they are refused as anything else that has no JSON form.
            encode(cast("JSON", to_jsonable_python([result.structured_content, result.meta])))
            dumped = cast("JSONObject", result.model_dump(mode="json", by_alias=True, exclude_none=True))
            _strip_foreign(dumped)
            size = len(encode(dumped).encode())
        except (PydanticSerializationError, NotStorable, ValueError):
            logger.exception("%s returned what can't be stored as JSON", self._in_log(run))
            return self._error(run, f"Error executing tool {self._tool.name}: its result can't be represented as JSON")
        if size > run.limits.result:
            logger.error("%s returned %d bytes, and %d is the limit", self._in_log(run), size, run.limits.result)
            return self._error(
                run,
                f"Error executing tool {self._tool.name}: its result takes {size} bytes as JSON, and "
                f"{run.limits.result} is the limit (result)",
            )
        return Completed(dumped)

    def _protocol_error(self, run: Run, told: Failure) -> Outcome:
        """The error itself; only its beginning, if it is larger than a result may be."""
        message = cut(told.message, run.limits.message)
        with suppress(NotStorable):  # which whoever stores it judges
            size = len(encode([told.message, told.data]).encode())
            if size > run.limits.result:
                logger.error("%s raised %d bytes, and %d is the limit", self._in_log(run), size, run.limits.result)
                told = Failure(told.code, message)
        return Failed(told, message)

    def _failed_tool(self, run: Run, error: ToolError) -> Outcome:
        cause = error.__cause__
        if isinstance(cause, LeaseLost):
            raise cause
        if isinstance(cause, InputKeyReused | JournalMismatch):
            return Failed(Failure(INTERNAL_ERROR, str(cause)))
        if isinstance(cause, StepFailed):
            return self._failed_step(run, cause)
        if isinstance(cause, StepInterrupted | LimitExceeded | NotStorable | InvalidDuration):
            # Ours, with texts that are fit for anybody, and the author looks at the client's side first.
            logger.error("%s: %s", self._in_log(run), cause)
            return self._error(run, f"Error executing tool {self._tool.name}: {cause}")
        if not run.parked:  # else the run goes on, and this is said another time
            log_failure(self._in_log(run), error)
        return self._error(run, str(error))

    def _failed_step(self, run: Run, failed: StepFailed) -> Outcome:
        """What the step's own error would have come to, had the tool raised it."""
        match cast("JSON", failed.detail):
            case {"code": int(code), "message": str(message), "data": data}:
                return Failed(Failure(code, message, data))
            case {"said": str(text)}:
                logger.info("%s failed: %s", self._in_log(run), failed)
                return self._error(run, f"Error executing tool {self._tool.name}: {text}")
            case _:
                return self._crashed(run, failed)

    def _crashed(self, run: Run, error: BaseException) -> Outcome:
        logger.error("%s raised an unexpected exception", self._in_log(run), exc_info=error)
        return self._error(run, f"Error executing tool {self._tool.name}")

    def _in_log(self, run: Run) -> str:
        return in_log(self._tool.name, run.claim.task.id)

    def _error(self, run: Run, message: str) -> Outcome:
        # A character takes six bytes at most as JSON; what is larger than a result may be is no text for a reader.
        text = cut(mended(message), max(run.limits.message, run.limits.result // 8))
        return Completed(
            cast("JSONObject", error_result(text).model_dump(mode="json", by_alias=True, exclude_none=True))
        )


async def _conclude(run: Run) -> None:
    """That the tool, which is over, came by all that it did before.

    Not if it ends early because it is told to, and not if it swallowed that it has to wait.

    Raises:
        JournalMismatch: it did not.
    """
    if run.parked or run.stopping or run.cancelled:
        return
    try:
        await run.conclude()
    except asyncio.CancelledError:
        # Who asks the tool to stop by now comes too late: its result is there.
        if not run.stopping:
            raise


def _judged(error: ToolError) -> BaseException | None:
    """The error that a retry is decided by; None for arguments that don't fit, which no other attempt would mend."""
    if isinstance(error.__cause__, ValidationError) and not isinstance(error, UnexpectedToolError):
        return None
    return original(error)


def _strip_foreign(result: JSONObject) -> None:
    """Drop what an older revision stamped on results and this one must never show (contract 3)."""
    meta = result.get("_meta")
    if isinstance(meta, dict):
        meta.pop(_RELATED_TASK, None)
