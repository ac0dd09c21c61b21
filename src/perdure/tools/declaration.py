"""Task tools: what was declared of them.

Everything about a tool's arguments and results is the SDK's own machinery (`mcp.server.mcpserver.tools.Tool`): the
schema that is listed, the validation of arguments, structured content, the text of errors. What is ours is when it
runs (`handler`).
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeGuard, get_args, get_origin

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import returns_input_required
from mcp.server.mcpserver.tools import Tool
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as ListedTool
from pydantic import ValidationError

from perdure.domain import ids
from perdure.domain.errors import ConfigurationError
from perdure.domain.limits import MAX_TOOL_NAME
from perdure.domain.model import JSONObject, Operation
from perdure.domain.retry import Retry
from perdure.engine.handler import DEFAULT_QUEUE
from perdure.store.codec import is_plain

from .context import TaskContext
from .secrets import check_forms
from .steps import complaint, misfit
from .sync_context import SyncTaskContext

__all__ = ["CALL", "Mode", "TaskTool", "ToolOptions", "error_result", "in_log", "log_failure"]

logger = logging.getLogger(__name__)

CALL: Final = "tools/call"
_TASK: Final = "task"
"""How everybody calls the parameter that takes the context."""
_SDK_OPTIONS: Final = tuple(inspect.signature(MCPServer[Any].add_tool).parameters)[2:]
"""What `MCPServer.tool` takes, without the server and the function."""
Mode = Literal["auto", "task"]
"""When a call becomes a task.

"auto": whenever the client declared the extension; otherwise the tool runs inside the request. "task": always, and a
client that did not declare the extension is refused with -32021."""


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `Tasks.tool` was told, in milliseconds where it is a time.

    `version` says which code it is; "" if its author tells none apart.

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
    retry: Retry | None = None
    timeout_ms: int | None = None
    version: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    concurrency: int | None = None

    def __post_init__(self) -> None:
        for option, (holds, wanted) in _RULES.items():
            value: object = getattr(self, option)
            if not holds(value):
                raise ConfigurationError(f"{option} is {value!r}: write {wanted}")
        if self.keep_ms is not None and self.ttl_ms is None:
            raise ConfigurationError(
                "keep_result extends a ttl, and there is none, so that tasks are kept for good: write ttl= as well"
            )


def _is_whole(value: object) -> TypeGuard[int]:
    # bool is an int to Python, but `priority=True` is a mistake.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_whole(value) and value >= 1


_COUNT: Final = "a whole number, at least 1"
_VERSION: Final = re.compile(r"[A-Za-z0-9._-]{0,100}")
_RULES: Final[dict[str, tuple[Callable[[object], bool], str]]] = {
    "mode": (lambda value: value in get_args(Mode), f"one of {', '.join(map(repr, get_args(Mode)))}"),
    "max_attempts": (_is_count, _COUNT),
    "retry": (lambda value: isinstance(value, Retry | None), "Retry(…), or leave it out"),
    "version": (
        lambda value: isinstance(value, str) and _VERSION.fullmatch(value) is not None,
        "a short text of letters, digits, '.', '_' and '-'",
    ),
    "queue": (lambda value: isinstance(value, str) and value != "", "the name of a queue"),
    "priority": (_is_whole, "a whole number; the larger one is run first"),
    "concurrency": (lambda value: value is None or _is_count(value), _COUNT),
}


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
        tool._check_name()
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
        check_forms(fn)
        return tool

    @property
    def name(self) -> str:
        return self.sdk.name

    @property
    def handler(self) -> str:
        """The name that tasks of this very code are claimed under."""
        return self.operation({}).handler

    def operation(self, params: JSONObject, accepts: frozenset[str] = frozenset()) -> Operation:
        """What a call of this tool asks for, as a task keeps it. `accepts`: the input that its caller can give."""
        return Operation(CALL, self.name, params, self.options.version, accepts)

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
            raise ToolError(f"Error executing tool {self.name}: {complaint(error)}") from error
        except Exception as error:  # the boundary around the author's code
            raise UnexpectedToolError(f"Error executing tool {self.name}") from error

    def wants_task(self, validated: dict[str, Any]) -> bool:
        """Whether a call with these arguments is worth a task; `when` decides, over the arguments that it names.

        Raises:
            UnexpectedToolError: it raised.
        """
        when = self.options.when
        try:
            return when is None or bool(when(**_named_by(when, validated)))
        except Exception as error:  # the boundary around the author's code
            raise UnexpectedToolError(f"Error executing tool {self.name}") from error

    def _check_name(self) -> None:
        """That no other tool's version goes by this name where tasks are claimed."""
        if "@" in self.name:
            raise ConfigurationError(
                f"{self.name}: a task tool's name has no '@', which stands before its version: leave it out, and write "
                "version= if one is meant"
            )
        if not is_plain(self.name):
            raise ConfigurationError(f"{self.name!r}: a task tool's name is valid Unicode, without null characters")
        if len(self.name) > MAX_TOOL_NAME:
            raise ConfigurationError(
                f"{self.name[:40]}…: a task tool's name has at most {MAX_TOOL_NAME} characters, and this one "
                f"{len(self.name)}"
            )

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


def in_log(name: str, task_id: str | None = None) -> str:
    """How a tool is called in the log, after the task that it works for if there is one."""
    return f"Tool {name!r}" if task_id is None else f"task {ids.abbreviated(task_id)}: Tool {name!r}"


def log_failure(tool: str, error: ToolError) -> None:
    """Keep on the server what the client is not told: the traceback of an exception that nobody anticipated."""
    if isinstance(error, UnexpectedToolError):
        logger.error("%s raised an unexpected exception", tool, exc_info=error)
    elif isinstance(error.__cause__, ValidationError):  # whose text quotes what did not fit
        logger.info("%s failed: %s", tool, misfit(error.__cause__))
    else:
        logger.info("%s failed: %r", tool, str(error))


def error_result(message: str) -> CallToolResult:
    """A tool error: the call came to a result, and it says that it went wrong."""
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)
