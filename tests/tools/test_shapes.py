"""What a step returns goes to JSON and comes back as what its function is annotated to return, or is refused."""

import dataclasses
import enum
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypeVar
from uuid import UUID

import pytest
from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from perdure import ConfigurationError, JournalMismatch, NotStorable
from perdure.store.codec import decode, encode
from perdure.tools.steps import Shape, describe

if TYPE_CHECKING:
    from collections import OrderedDict as Absent

T = TypeVar("T")


def kind(value: object) -> str:
    """What a case goes by. Not `repr`, in which the processes that share the tests differ."""
    return getattr(value, "__name__", type(value).__name__)


def through(value: Any, fn: Callable[..., Any] = lambda: None, returns: Any = None) -> Any:
    """What is read of `value` after it lay in the store."""
    shape = Shape("fetch", fn, returns)
    return shape.read(decode(encode(shape.keep(value))))


class Color(enum.Enum):
    RED = "red"


class Page(BaseModel):
    number: int
    written: datetime | None = None


class Aliased(BaseModel):
    written_at: datetime = Field(alias="writtenAt")
    read: int = Field(validation_alias="in", serialization_alias="out")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    when: date
    pair: tuple[int, int]
    color: Color


class Longer(Page):
    more: str


@dataclasses.dataclass
class Point:
    x: int
    at: datetime


class Span(TypedDict):
    first: date


class Pair(NamedTuple):
    left: int
    right: str


NOW = datetime(2026, 7, 28, 12, 30, 0, 5, tzinfo=UTC)
POINT = Point(1, NOW)
STRICT = Strict(when=NOW.date(), pair=(1, 2), color=Color.RED)
ALIASED = Aliased.model_validate({"writtenAt": NOW, "in": 3})


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int), (True, bool), ("text", str), (None, type(None)), (None, int | None), (2.5, float), (5, int | str),
        (NOW, datetime), (NOW.date(), date), (timedelta(days=3), timedelta), (Decimal("1.10"), Decimal),
        (UUID(int=7), UUID), (PurePosixPath("/a"), PurePosixPath), (Color.RED, Color),
        ((1, "a"), tuple[int, str]), ({1, 2}, set[int]), (frozenset({"a"}), frozenset[str]),
        ({1: NOW}, dict[int, datetime]),
        (b"\xff\x00", bytes), ([b"\xfe"], list[bytes]), ([[1], []], list[list[int]]), (5, Annotated[int, Field(gt=1)]),
        (5, Annotated[int, []]),
        (Page(number=1, written=NOW), Page), ([Page(number=1)], list[Page]), ({"a": Page(number=1)}, dict[str, Page]),
        (POINT, Point), ([POINT], list[Point]), ({"first": NOW.date()}, Span), (Pair(1, "b"), Pair),
        (ALIASED, Aliased), ([ALIASED], list[Aliased]), (STRICT, Strict),
        ("anything", object), ([1, {"a": None}], Any),
    ],
)  # fmt: skip
def test_a_result_comes_back_as_it_was(value: Any, annotation: Any) -> None:
    assert through(value, returns=annotation) == value
    assert type(through(value, returns=annotation)) is type(value)


def test_without_an_annotation_it_comes_back_as_json() -> None:
    assert through(Page(number=1, written=NOW)) == {"number": 1, "written": "2026-07-28T12:30:00.000005Z"}
    assert through((1, {2})) == [1, [2]]
    assert through(ALIASED) == {"written_at": "2026-07-28T12:30:00.000005Z", "read": 3}


def test_the_annotation_decides_and_not_what_was_returned() -> None:
    assert through({"number": "5"}, returns=Page) == Page(number=5)
    assert type(through(Longer(number=1, more="m"), returns=Page)) is Page
    assert through((1, 2), returns=list[int]) == [1, 2]


# -- which type --------------------------------------------------------------------------------------------------------


async def coroutine() -> Page: ...


def plain() -> Page: ...


def awaitable() -> Awaitable[Page]: ...


def coroutine_maker() -> Coroutine[Any, Any, Page]: ...


def in_quotes() -> "list[Page]": ...


def other_types_are_for_checkers(value: "Absent[str, int]") -> "Page": ...


class Caller:
    def __call__(self) -> Page: ...
    async def method(self, n: int) -> Page: ...


@functools.wraps(coroutine)
def wrapper(*args: Any) -> Any: ...


@pytest.mark.parametrize(
    "fn",
    [coroutine, plain, awaitable, coroutine_maker, other_types_are_for_checkers, Caller(), Caller().method, wrapper,
     functools.partial(functools.partial(Caller().method), 1), Page],
    ids=kind,
)  # fmt: skip
def test_the_type_is_what_the_function_is_annotated_to_return_or_what_that_is_awaited_as(
    fn: Callable[..., Any],
) -> None:
    assert through(Page(number=1), fn) == Page(number=1)


def test_an_annotation_may_be_quoted_or_of_the_surrounding_function() -> None:
    class Local(BaseModel):
        n: int

    def made() -> "Local":
        return Local(n=1)

    assert through([Page(number=1)], in_quotes) == [Page(number=1)]
    assert through(Local(n=1), made) == Local(n=1)


def anything() -> Any: ...


def never() -> NoReturn: ...


def generic(value: T) -> T: ...


@pytest.mark.parametrize(
    "fn", [anything, never, generic, len, dict, lambda: None, functools.partial(anything)], ids=kind
)
def test_what_says_nothing_of_its_result_gives_json(fn: Callable[..., Any]) -> None:
    assert through({"number": 1}, fn) == {"number": 1}


def test_returns_counts_before_the_annotation() -> None:
    assert through({"number": 1}, coroutine, returns=dict[str, int]) == {"number": 1}


def of_nothing() -> "Absent[str, int]": ...


def test_an_annotation_that_is_not_there_says_so_and_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"step 'fetch'.*name 'Absent' is not defined.*Pass returns="):
        Shape("fetch", of_nothing)


# -- what is refused ---------------------------------------------------------------------------------------------------


class Secretive:
    def __repr__(self) -> str:
        return "secret"


class Picky(BaseModel):
    n: Annotated[int, Field(lt=10)]


def cyclic() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@pytest.mark.parametrize(
    ("value", "annotation", "reason"),
    [
        (float("nan"), None, "NotStorable"),
        ([float("inf")], list[float], "NotStorable"),
        (Point(1, NOW), tuple[int, int], r"tuple\[int, int\] \(Input should be a valid array"),
        ("\ud800", str, "NotStorable"),
        (Secretive(), None, "Unable to serialize unknown type"),
        (threading.Lock(), None, "Unable to serialize unknown type"),
        (b"\xff", None, "PydanticSerializationError|UnicodeDecodeError"),
        (cyclic(), None, "ValueError"),
        ("secret", int, r"int \(Input should be a valid integer"),
        (None, Page, r"Page \(Input should be an object"),
        (Page.model_construct(number="secret"), Page, r"Page \(number: Input should be a valid integer"),
        (Picky.model_construct(n=99), Picky, r"Picky \(n: Input should be less than "),
        ("secret", type(None), r"NoneType \(Input should be null"),
    ],
    ids=kind,
)
def test_what_can_not_be_stored_is_refused_by_the_name_of_the_step_and_is_not_quoted(
    value: Any, annotation: Any, reason: str
) -> None:
    with pytest.raises(
        NotStorable, match=f"^The result of the step 'fetch' can't be stored as JSON: ({reason})"
    ) as raised:
        Shape("fetch", lambda: None, annotation).keep(value)
    assert "secret" not in str(raised.value)


def test_a_type_that_nothing_is_known_of_is_refused_before_anything_runs() -> None:
    def connect() -> Secretive:
        return Secretive()

    for fn, returns in ((connect, None), (lambda: None, Secretive), (lambda: None, list[Secretive])):
        with pytest.raises(NotStorable, match=r"step 'fetch' can't be stored.*nothing is known of .*Secretive"):
            Shape("fetch", fn, returns)


def test_a_recorded_result_that_the_code_no_longer_reads_names_both_sides() -> None:
    kept = Shape("fetch", lambda: None, dict[str, int]).keep({"pages": 1})
    both = r"step 'fetch' the journal has a result of another kind, and the code reads it as Page \(number: Field req"
    with pytest.raises(JournalMismatch, match=both):
        Shape("fetch", coroutine).read(kept)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ToolError("no ink"), {"said": "no ink"}),
        (ResourceError("no paper"), {"said": "no paper"}),
        (ToolError("lone \ud800"), {"said": "lone ?"}),
        (MCPError(-32050, "why", {"a": [1]}), {"code": -32050, "message": "why", "data": {"a": [1]}}),
        (MCPError(1, "why"), {"code": 1, "message": "why", "data": None}),
        (MCPError(1, "why", object()), {"code": 1, "message": "why", "data": None}),
        (MCPError(1, "why", float("nan")), {"code": 1, "message": "why", "data": None}),
        (MCPError(1, "why", "x" * 100_001), {"code": 1, "message": "why", "data": None}),
        (UnexpectedToolError("secret"), None),
        (RuntimeError("secret"), None),
        (TimeoutError(), None),
    ],
    ids=kind,
)
def test_of_an_error_that_is_kept_which_a_client_would_hear(error: Exception, said: Any) -> None:
    assert describe(error) == said


def test_what_is_kept_of_an_error_is_bounded() -> None:
    assert describe(ToolError("x" * 1_000_000)) == {"said": "x" * 100_000}
