"""Task tools: what was declared, and the handler that a worker calls for it.

Everything about a tool's arguments and results is the SDK's own machinery (`mcp.server.mcpserver.tools.Tool`): the
schema that is listed, the validation of arguments, structured content, the text of errors. What is ours is when it
runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast, get_args, get_origin

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import returns_input_required
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult, TextContent
from mcp_types import Tool as ListedTool
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perdure.domain.errors import ConfigurationError, InputKeyReused, LeaseLost, NotStorable
from perdure.domain.lifecycle import INTERNAL_ERROR
from perdure.domain.model import JSON, Completed, Failed, Failure, JSONObject, Outcome
from perdure.engine.run import Run
from perdure.store.codec import encode

from .context import SyncTaskContext, TaskContext

__all__ = ["CALL", "Mode", "TaskTool", "ToolHandler", "ToolOptions", "error_result", "log_failure"]

logger = logging.getLogger(__name__)

CALL: Final = "tools/call"
_TASK: Final = "task"
"""How everybody calls the parameter that takes the context."""
_SDK_OPTIONS: Final = tuple(inspect.signature(MCPServer[Any].add_tool).parameters)[2:]
"""What `MCPServer.tool` takes, without the server and the function."""
_RELATED_TASK = "io.modelcontextprotocol/related-task"
Mode = Literal["auto", "task"]
"""When a call becomes a task.

"auto": whenever the client declared the extension; otherwise the tool runs inside the request. "task": always, and a
client that did not declare the extension is refused with -32021."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `Tasks.tool` was told, in milliseconds where it is a time.

    Raises:
        ConfigurationError: an option has a value that it can't have; the message says which it can.
    """

    mode: Mode = "auto"
    ttl_ms: int | None = None
    keep_ms: int | None = None
    poll_ms: int | None = None
    max_attempts: int = 10
    when: Callable[..., bool] | None = None
    prepare: Tool | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ConfigurationError(f"mode is {self.mode!r}: write one of {', '.join(map(repr, get_args(Mode)))}")
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise ConfigurationError(f"max_attempts is {self.max_attempts!r}: write a whole number, at least 1")


@dataclass(frozen=True, slots=True)
class TaskTool:
    """A tool whose calls may become tasks."""

    sdk: Tool
    options: ToolOptions

    @classmethod
    def declare(cls, fn: Callable[..., Any], options: ToolOptions, **sdk_options: Any) -> TaskTool:
        """The tool that `fn` is.

        Raises:
            ConfigurationError: it can't be one; the message says what to change.
        """
        unknown = sorted(sdk_options.keys() - set(_SDK_OPTIONS))
        if unknown:
            raise ConfigurationError(
                f"There is no option {unknown[0]!r}. Besides those of Tasks.tool, what MCPServer.tool takes: "
                f"{', '.join(_SDK_OPTIONS)}"
            )
        tool = cls(Tool.from_function(fn, **sdk_options), options)
        tool._check_context(fn)
        tool._check_named()
        if options.prepare is not None:
            # The name that its errors go out under: clients know of no other function.
            prepare = options.prepare.model_copy(update={"name": tool.name})
            tool = cls(tool.sdk, replace(options, prepare=prepare))
        if returns_input_required(fn):
            raise ConfigurationError(
                f"{tool.name}: a task can't return an InputRequiredResult. Ask through the {TaskContext.__name__}, or "
                "before there is a task, in a function that you pass as prepare="
            )
        if tool.sdk.resolved_params:
            raise ConfigurationError(
                f"{tool.name}: Resolve(...) parameters belong to a request, and a task outlives it. Resolve them in a "
                "function that you pass as prepare=, and read what it returned from task.prepared"
            )
        return tool

    @property
    def name(self) -> str:
        return self.sdk.name

    def is_listed_as(self, listed: ListedTool) -> bool:
        """Whether `listed`, which goes by this tool's name, is this tool."""
        mine = (self.sdk.description, self.sdk.parameters, self.sdk.output_schema)
        return mine == (listed.description, listed.input_schema, listed.output_schema)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function will get them.

        Raises:
            ToolError: they don't fit the input schema; said to the model, as the SDK says it.
        """
        try:
            return self.sdk.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            raise ToolError(f"Error executing tool {self.name}: {error}") from error
        except Exception as error:
            raise UnexpectedToolError(f"Error executing tool {self.name}") from error

    def wants_task(self, validated: dict[str, Any]) -> bool:
        """Whether a call with these arguments is worth a task; `when` decides, over the arguments that it names.

        Raises:
            UnexpectedToolError: it raised.
        """
        when = self.options.when
        try:
            return when is None or bool(when(**_named_by(when, validated)))
        except Exception as error:
            raise UnexpectedToolError(f"Error executing tool {self.name}") from error

    def _check_context(self, fn: Callable[..., Any]) -> None:
        keyword = self.sdk.context_kwarg
        wanted = TaskContext if self.sdk.is_async else SyncTaskContext
        if keyword is not None and self._context_type(fn) is not wanted:
            kind = "a coroutine function" if self.sdk.is_async else "a plain function"
            bare = "" if get_origin(self._context_type(fn)) is None else " itself, without Optional"
            raise ConfigurationError(f"{self.name}: it is {kind}, so annotate {keyword!r} with {wanted.__name__}{bare}")
        task = inspect.signature(fn).parameters.get(_TASK)
        if task is not None and task.annotation is task.empty:
            raise ConfigurationError(
                f"{self.name}: {_TASK!r} has no annotation, so clients would have to pass it: annotate {_TASK!r} with "
                f"{wanted.__name__}, or with the type of an argument"
            )

    def _context_type(self, fn: Callable[..., Any]) -> object:
        return inspect.signature(fn, eval_str=True).parameters[self.sdk.context_kwarg or ""].annotation

    def _check_named(self) -> None:
        """That `when` and `prepare` ask for no argument that there is not, which would fail every call."""
        arguments = _argument_names(self.sdk)
        prepare, when = self.options.prepare, self.options.when
        asked = {
            "prepare": () if prepare is None else _argument_names(prepare, required=True),
            "when": () if when is None else _required(when),
        }
        for option, names in asked.items():
            for name in names:
                if name not in arguments:
                    raise ConfigurationError(
                        f"{self.name}: {option} names an argument {name!r}, which the tool lacks; it has "
                        f"{', '.join(map(repr, arguments)) or 'none'}"
                    )


def _argument_names(tool: Tool, *, required: bool = False) -> tuple[str, ...]:
    """The arguments of `tool` by the names that its function gets them under; only those that must be there."""
    fields = tool.fn_metadata.arg_model.model_fields.items()
    return tuple(field.alias or name for name, field in fields if not required or field.is_required())


def _required(fn: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(
        parameter.name
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    )


def _named_by(fn: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(fn).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return arguments
    return {name: value for name, value in arguments.items() if name in parameters}


def log_failure(name: str, error: ToolError) -> None:
    """Keep on the server what the client is not told: the traceback of an exception that nobody anticipated."""
    if isinstance(error, UnexpectedToolError):
        logger.error("Tool %r raised an unexpected exception", name, exc_info=error)
    else:
        logger.info("Tool %r failed: %r", name, str(error))


def _strip_foreign(result: JSONObject) -> None:
    """Drop what an older revision stamped on results and this one must never show (contract 3)."""
    meta = result.get("_meta")
    if isinstance(meta, dict):
        meta.pop(_RELATED_TASK, None)


def error_result(message: str) -> CallToolResult:
    """A tool error: the call came to a result, and it says that it went wrong."""
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)


class ToolHandler:
    """What a worker calls for one tool: runs its function over the run, and turns what comes out into an outcome.

    Raised exceptions are tool errors (`completed`, `isError`), `MCPError` is a protocol error (`failed`), and the text
    of an exception that nobody anticipated stays on the server (contract 3, and the SDK's own rule).
    """

    def __init__(self, tool: TaskTool, state: Callable[[], object]) -> None:
        self._tool = tool
        self._state = state
        self._context = TaskContext if tool.sdk.is_async else SyncTaskContext

    @property
    def threaded(self) -> bool:
        return not self._tool.sdk.is_async

    async def __call__(self, run: Run, params: JSONObject) -> Outcome:
        context = self._context(run, params.get("prepared"), self._state())  # pyright: ignore[reportCallIssue] - inherited
        arguments = cast("dict[str, Any]", params["arguments"])
        try:
            return self._completed(await self._tool.sdk.run(arguments, context, convert_result=True))
        except MCPError as error:
            return Failed(Failure(error.error.code, error.error.message, error.error.data))
        except ToolError as error:
            return self._failed_tool(error)
        except BaseException as error:
            # `Parked`, or what a task group wrapped it in, is no crash; nor is a cancellation that somebody asked for.
            if run.asked or (run.stopping and isinstance(error, asyncio.CancelledError)):
                raise
            # The rest is, `SystemExit` and its kind included, which would stop the server and not the tool.
            return self._crashed(error)

    def _completed(self, result: CallToolResult | InputRequiredResult) -> Outcome:
        if isinstance(result, InputRequiredResult):
            logger.error("Tool %r returned an InputRequiredResult, which a task can't", self._tool.name)
            return self._error(f"Error executing tool {self._tool.name}")
        try:
            # The SDK's dump turns NaN and infinities into null, which no output schema of numbers allows. This one
            # keeps them, so that they are refused as anything else that has no JSON form.
            encode(cast("JSON", to_jsonable_python([result.structured_content, result.meta])))
            dumped = cast("JSONObject", result.model_dump(mode="json", by_alias=True, exclude_none=True))
            _strip_foreign(dumped)
            encode(dumped)
        except (PydanticSerializationError, NotStorable, ValueError, UnicodeError):
            logger.exception("Tool %r returned what can't be stored as JSON", self._tool.name)
            return self._error(f"Error executing tool {self._tool.name}: its result can't be represented as JSON")
        return Completed(dumped)

    def _failed_tool(self, error: ToolError) -> Outcome:
        match error.__cause__:
            case LeaseLost() as lost:
                raise lost
            case InputKeyReused() as reused:
                return Failed(Failure(INTERNAL_ERROR, str(reused)))
            case _:
                pass
        log_failure(self._tool.name, error)
        return self._error(str(error))

    def _crashed(self, error: BaseException) -> Outcome:
        logger.error("Tool %r raised an unexpected exception", self._tool.name, exc_info=error)
        return self._error(f"Error executing tool {self._tool.name}")

    def _error(self, message: str) -> Outcome:
        text = message.encode("utf-8", "replace").decode("utf-8")
        return Completed(
            cast("JSONObject", error_result(text).model_dump(mode="json", by_alias=True, exclude_none=True))
        )
