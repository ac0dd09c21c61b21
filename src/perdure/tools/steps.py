"""What a step's function is to the engine: something to await, whose results and errors are JSON on their way.

A result goes out by the return annotation of the function and comes back by it, through the same round trip whether it
was made just now or is read from the journal: code that works live works in replay. Fields go by their own names on the
way, not by aliases, which may differ between the two directions.

Plain functions run in threads of their own kind. A plain tool holds a thread while it waits for its step's; took both
from one pool, enough tools at once would hold every thread that they wait for.
"""

from __future__ import annotations

import functools
import inspect
import math
import typing
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from typing import Any, Final, cast, get_args, get_origin

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedResourceError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import PydanticSerializationError, core_schema, to_jsonable_python

from perdure.domain.errors import ConfigurationError, JournalMismatch, NotStorable
from perdure.domain.model import JSON
from perdure.store.codec import decode, encode, mended

from .names import names_for

__all__ = ["Function", "Shape", "called", "complaint", "describe", "in_thread", "misfit", "no_function"]

Function = Callable[..., Any]

_THREADS: Final = 64
"""How many plain steps run at once in one event loop. None of them waits for another, so any bound is safe."""
_threads: RunVar[CapacityLimiter] = RunVar("perdure_step_threads")
_branches: RunVar[CapacityLimiter] = RunVar("perdure_branch_threads")
_DESCRIBED: Final = 100_000
"""Characters that are kept of what an error says to a client."""
_QUOTING: Final = frozenset(
    {
        "assertion_error",
        "datetime_object_invalid",
        "get_attribute_error",
        "import_error",
        "iteration_error",
        "mapping_type",
        "timezone_offset",
        "union_tag_invalid",
        "value_error",
    }
)
"""Errors of pydantic's whose messages repeat the value, or what somebody's validator says of it."""
_PLAIN: Final = frozenset(get_args(core_schema.ErrorType)) - _QUOTING
_MANY: Final = 100
"""Errors of one value. More of them are not told one by one: each takes microseconds to be put into words."""


# -- running -----------------------------------------------------------------------------------------------------------


async def called(fn: Function, args: tuple[Any, ...]) -> Any:
    """What `fn` comes to: awaited if it is a coroutine function or returns an awaitable, run in a thread otherwise.

    A thread can't be interrupted; one whose step's time is over is left to itself.

    Raises:
        RuntimeError: it would have ended the process. A step of a plain tool is a task of the event loop's, which would
            let that through.
    """
    try:
        if _is_async(fn):
            return await fn(*args)
        limiter = _limiter(_threads, _THREADS)
        value = await to_thread.run_sync(fn, *args, limiter=limiter, abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"The step raised {type(error).__name__}") from error


async def in_thread(branch: Function) -> Any:
    """What one branch of a plain tool's gather comes to. Unbounded, since a branch may gather in its turn."""
    if _is_async(branch):
        return await branch()
    return await to_thread.run_sync(branch, limiter=_limiter(_branches, math.inf))


def no_function(value: object) -> str | None:
    """What `value` is, in words, if it can't be called. A coroutine is closed, else Python would complain of it too."""
    if callable(value):
        return None
    if not inspect.iscoroutine(value):
        return f"a value of type {type(value).__name__}"
    value.close()
    return f"what calling {value.__name__} returned"


def _limiter(kept: RunVar[CapacityLimiter], tokens: float) -> CapacityLimiter:
    try:
        return kept.get()
    except LookupError:
        limiter = CapacityLimiter(tokens)
        kept.set(limiter)
        return limiter


def _is_async(fn: object) -> bool:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    # Of a class, `__call__` is its instances'.
    instance = None if isinstance(fn, type) else getattr(fn, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(instance)


# -- results -----------------------------------------------------------------------------------------------------------


class Shape:
    """How the results of one step become JSON, and what they are read as.

    Args:
        name: the step's, for the messages.
        fn: its function, whose return annotation counts. Without one, or with `Any`, a result is the JSON value itself.
        returns: counts in its place, unless it is None.

    Raises:
        ConfigurationError: the annotation names something that is not there.
        NotStorable: pydantic knows no such type.
    """

    def __init__(self, name: str, fn: Function, returns: Any = None) -> None:
        self._name = name
        self._type = _returned_by(name, fn) if returns is None else returns
        try:
            self._adapter = None if self._type is Any else _adapter(self._type)
        except PydanticUserError as error:
            known = f"nothing is known of {_named(self._type)}. Return what the task needs of it, or pass returns="
            reason = known if isinstance(error, PydanticSchemaGenerationError) else error.message
            raise NotStorable(f"The result of the step {name!r} can't be stored as JSON: {reason}") from error

    def keep(self, value: Any) -> JSON:
        """`value` as JSON.

        Raises:
            NotStorable: it has no such form, or would not come back as what the function is said to return.
        """
        try:
            dumped = self._dump(value)
            text = encode(dumped)
            self._read(text)
        except Exception as error:  # the boundary around the author's serializers and validators
            raise NotStorable(
                f"The result of the step {self._name!r} can't be stored as JSON: {self._why(error)}"
            ) from error
        return dumped

    def read(self, value: JSON) -> Any:
        """What was kept.

        Raises:
            JournalMismatch: another type was kept than the code expects by now.
        """
        try:
            return value if self._adapter is None else self._read(encode(value))
        except Exception as error:  # as above
            recorded, found = "has a result of another kind", f"reads it as {self._why(error)}"
            raise JournalMismatch(f"of the step {self._name!r}", recorded, found) from error

    def _dump(self, value: Any) -> JSON:
        if self._adapter is None:
            return cast("JSON", to_jsonable_python(value, by_alias=False))
        return cast("JSON", self._adapter.dump_python(value, mode="json", by_alias=False, warnings="none"))

    def _read(self, text: str) -> Any:
        return (
            decode(text) if self._adapter is None else self._adapter.validate_json(text, by_alias=False, by_name=True)
        )

    def _why(self, error: Exception) -> str:
        """The reason, without what was returned: it may be said to a client."""
        if isinstance(error, ValidationError):
            return f"{_named(self._type)} ({misfit(error)})"
        unknown = isinstance(error, PydanticSerializationError) and str(error).startswith("Unable to serialize unknown")
        return str(error) if unknown else type(error).__name__


def complaint(error: ValidationError) -> str:
    """All of it, as the SDK says it to whoever called; but a MiB of faults would take 35 to tell, on the event loop."""
    if error.error_count() > _MANY:
        return f"{error.error_count()} validation errors for {error.title}, which are too many to be told"
    return str(error)


def misfit(error: ValidationError) -> str:
    """Where and why a value does not fit its type, without the value: it may be said to a client."""
    if error.error_count() > _MANY:
        return f"{error.error_count()} validation errors"
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    reason = first["msg"] if first["type"] in _PLAIN else first["type"]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {reason}" if where else reason


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        hash(annotation)
    except TypeError:  # `Annotated` with something in it that has no hash
        return _new_adapter(annotation)
    return _known_adapter(annotation)


@lru_cache(maxsize=1024)
def _known_adapter(annotation: Any) -> TypeAdapter[Any]:
    return _new_adapter(annotation)


def _new_adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        # Bytes that are no text have no JSON form otherwise.
        return TypeAdapter(annotation, config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64"))
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(annotation)  # a model, which has a configuration of its own


def _returned_by(name: str, fn: Function) -> Any:
    """The type of what is kept of `fn`: its return annotation, or of an awaitable what that comes to."""
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[Any]", fn).func
    if isinstance(fn, type):
        return fn
    function = fn if inspect.isroutine(fn) else type(fn).__call__
    found = getattr(function, "__annotations__", {}).get("return", Any)
    try:
        annotation = typing.get_type_hints(_Annotated(found), names_for(function), include_extras=True)["return"]
    except NameError as error:
        raise ConfigurationError(
            f"The step {name!r}: the return annotation {found!r} can't be read here ({error}). Pass returns="
        ) from error
    if not _is_async(fn) and _is_awaitable(annotation):
        annotation = (*get_args(annotation), Any)[0 if get_origin(annotation) is not Coroutine else 2]
    if annotation is cast("Any", typing).Self:
        owner = getattr(fn, "__self__", fn)
        return owner if isinstance(owner, type) else type(owner)
    return Any if annotation in (typing.NoReturn, typing.Never) else annotation


class _Annotated:
    """Just a return annotation: the parameters' may name what is there for type checkers only."""

    def __init__(self, annotation: Any) -> None:
        self.__annotations__ = {"return": annotation}


def _is_awaitable(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    return isinstance(origin, type) and issubclass(origin, Awaitable)


def _named(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


# -- errors ------------------------------------------------------------------------------------------------------------


def describe(error: Exception) -> JSON:
    """What a client would have heard of `error`, for a step that failed with it; the handler of the tool says it."""
    if isinstance(error, UnexpectedToolError | UnexpectedResourceError):
        return None
    if isinstance(error, ToolError | ResourceError):
        return {"said": _text(str(error))}
    if isinstance(error, MCPError):
        told = error.error
        return {"code": told.code, "message": _text(told.message), "data": _data(told.data)}
    return None


def _text(text: str) -> str:
    return mended(text[:_DESCRIBED])


def _data(data: Any) -> JSON:
    """The data of a protocol error, or nothing, if it has no JSON form or is no small thing."""
    try:
        text = encode(cast("JSON", to_jsonable_python(data)))
    except (PydanticSerializationError, NotStorable, ValueError):
        return None
    return decode(text) if len(text) <= _DESCRIBED else None
