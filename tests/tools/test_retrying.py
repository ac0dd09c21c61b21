"""Which errors are worth another run: failures are, answers only by their name, and bugs never."""

import asyncio
from typing import Any, TypeVar

import pytest
from mcp.server.mcpserver.exceptions import ResourceError, ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError

from perdure import (
    ConfigurationError,
    InputKeyReused,
    InvalidDuration,
    JournalMismatch,
    LimitExceeded,
    NotStorable,
    Retry,
    StepFailed,
    StepInterrupted,
    StoreUnavailable,
)
from perdure.domain.model import Claim, Operation, Owner, Status, Task
from perdure.engine.handler import Again
from perdure.engine.run import Parked
from perdure.tools.retrying import Declined, again, is_worth, original

E = TypeVar("E", bound=Exception)

ANY = Retry(max_attempts=3, backoff="1s", jitter=0)


class NoInk(ToolError):
    pass


class Flaky(ToolError, ConnectionError):
    pass


def claimed(failures: int = 0) -> Claim:
    operation = Operation("tools/call", "tool", {})
    return Claim(Task(1, "tsk", Owner("", "ann"), Status.WORKING, 0, 0), operation, 1, 0, failures=failures)


def decided(
    error: BaseException, retry: Retry = ANY, *, failures: int = 0, once: frozenset[str] = frozenset()
) -> Again | None:
    return again(retry, error, claimed(failures), once, 0.0)


def failed(
    cause: Exception | None = None, place: str = "3", type: str = "ConnectionError", detail: Any = None
) -> StepFailed:
    """A failed step; live if there is a cause, else as a replay finds it."""
    error = StepFailed("fetch", type, "boom", places=(place,), detail=detail)
    error.__cause__ = cause
    return error


def raised(first: BaseException, then: E) -> E:
    """`then`, raised while `first` was handled."""
    then.__context__ = first
    return then


@pytest.mark.parametrize(
    "error",
    [RuntimeError("boom"), ConnectionResetError(), TimeoutError(), StoreUnavailable(), UnexpectedToolError("nested"),
     ExceptionGroup("two", [OSError(), ValueError()])],
    ids=lambda case: type(case).__name__,
)  # fmt: skip
def test_a_failure_is_worth_it(error: Exception) -> None:
    assert is_worth(ANY, error)
    assert is_worth(ANY, failed(error))
    assert not is_worth(Retry(on=(KeyError,)), error)
    assert not is_worth(Retry(on=()), error)


@pytest.mark.parametrize(
    "error",
    [ConfigurationError("x"), InputKeyReused("k"), InvalidDuration("x"), JournalMismatch("1", "a", "b"),
     LimitExceeded("x"), NotStorable("x"), StepInterrupted("s"), Declined("no"),
     asyncio.CancelledError(), SystemExit(), Parked()],
    ids=lambda case: type(case).__name__,
)  # fmt: skip
def test_a_bug_a_refusal_and_what_is_no_error_never_is(error: BaseException) -> None:
    kinds = (type(error),) if isinstance(error, Exception) else ()
    assert not is_worth(Retry(on=(Exception, ToolError, *kinds)), error)


@pytest.mark.parametrize(
    ("error", "named"),
    [(ToolError("no"), ToolError), (NoInk("no"), ToolError), (NoInk("no"), NoInk), (ResourceError("no"), ResourceError),
     (MCPError(1, "no"), MCPError), (Flaky("no"), ConnectionError)],
    ids=lambda case: type(case).__name__,
)  # fmt: skip
def test_an_answer_is_if_its_kind_is_named(error: Exception, named: type[Exception]) -> None:
    for each in (error, failed(error)):
        assert not is_worth(ANY, each)
        assert not is_worth(Retry(on=(Exception, KeyError)), each)
        assert is_worth(Retry(on=(named,)), each)
        assert is_worth(Retry(on=(Exception, named)), each)


def test_a_group_is_if_all_that_is_in_it_is_or_if_it_is_named() -> None:
    mixed = ExceptionGroup("two", [OSError(), ExceptionGroup("more", [ToolError("no")])])
    assert not is_worth(ANY, mixed)
    assert is_worth(Retry(on=(OSError, ToolError)), mixed)
    assert is_worth(Retry(on=(ExceptionGroup,)), mixed)
    assert not is_worth(ANY, BaseExceptionGroup("two", [OSError(), Parked()]))


SAID = {"said": "no"}


@pytest.mark.parametrize(
    ("error", "kinds", "worth"),
    [
        (failed(), (Exception,), True),
        (failed(), (ConnectionError,), True),
        (failed(type="ConnectionResetError"), (OSError,), True),
        (failed(), (KeyError,), False),
        (failed(type="NobodyKnows"), (Exception,), True),
        (failed(type="NobodyKnows"), (OSError,), False),
        (failed(), (StepFailed,), True),
        (failed(type="ToolError", detail=SAID), (Exception,), False),
        (failed(type="ToolError", detail=SAID), (Exception, ToolError), True),
        (failed(type="NoInk", detail=SAID), (ToolError,), True),
        (failed(type="Declined", detail=SAID), (Exception, ToolError), False),
    ],
)
def test_after_a_replay_a_failed_step_is_known_by_name(
    error: StepFailed, kinds: tuple[type[Exception], ...], worth: bool
) -> None:
    assert is_worth(Retry(on=kinds), error) is worth


# -- another attempt ---------------------------------------------------------------------------------------------------


def test_another_attempt_says_when_and_why_and_what_is_done_again() -> None:
    assert decided(RuntimeError("boom")) == Again(1000, "RuntimeError: boom", ())
    assert decided(failed(OSError()), failures=1) == Again(
        2000, "The step 'fetch' failed: ConnectionError: boom", ("3",)
    )
    assert decided(RuntimeError("boom"), failures=2) is None
    assert decided(ToolError("no")) is None


def test_the_note_is_bounded_and_any_text_gets_through() -> None:
    found = decided(RuntimeError("\ud800\0" + "x" * 1000))
    assert found is not None
    assert found.note == "RuntimeError: ??" + "x" * 484


def test_every_failed_step_that_led_to_the_error_is_done_again() -> None:
    error = ExceptionGroup("two", [raised(failed(place="1"), ValueError()), failed(place="2.0/1"), failed(place="1")])
    error.__cause__ = error.exceptions[0]
    found = decided(error)
    assert found is not None
    assert set(found.failed) == {"1", "2.0/1"}
    assert len(found.failed) == 2


def test_an_error_that_came_from_no_step_leaves_all_of_them() -> None:
    found = decided(raised(ValueError(), RuntimeError()))
    assert found is not None
    assert found.failed == ()


@pytest.mark.parametrize("once", [{"3"}, {"4"}, {"7.1/0"}, {"0", "3.0/1"}])
def test_there_is_none_that_would_repeat_a_step_which_may_run_at_most_once(once: set[str]) -> None:
    assert decided(failed(), once=frozenset(once)) is None
    assert decided(raised(failed(), RuntimeError()), once=frozenset(once)) is None


def test_a_step_that_may_run_once_and_keeps_its_result_stands_in_the_way_of_nothing() -> None:
    assert decided(failed(), once=frozenset({"2", "1.0/9"})) is not None
    assert decided(failed(place="3.0/2"), once=frozenset({"3.1/5", "3.0/1", "2"})) is not None
    assert decided(RuntimeError(), once=frozenset({"0"})) is not None


def test_code_that_swallows_a_wait_is_waiting_all_the_same() -> None:
    assert decided(raised(Parked(), RuntimeError())) is None


def test_what_the_tool_raised_is_found_under_what_the_sdk_made_of_it() -> None:
    def wrapped(kind: type[ToolError], cause: BaseException) -> ToolError:
        error = kind("Error executing tool tool")
        error.__cause__ = cause
        return error

    crash, answer = ValueError(), ToolError("no")
    answer.__cause__ = ValueError()
    assert original(wrapped(UnexpectedToolError, crash)) is crash
    assert original(wrapped(UnexpectedToolError, wrapped(UnexpectedToolError, crash))) is crash
    assert original(wrapped(ToolError, answer)) is answer
    assert original(answer.__class__("bare")).args == ("bare",)
