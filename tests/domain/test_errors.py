"""What errors tell, and to whom: a tool's author is told what to change, a client nothing that is not its own."""

import pytest

from perdure.domain import errors
from perdure.domain.errors import (
    AlreadySettled,
    BacklogFull,
    IdempotencyKeyReused,
    JournalMismatch,
    PerdureError,
    StepFailed,
    StepInterrupted,
    StoreUnavailable,
    TaskExpired,
    TaskNotFound,
)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_grows_on_the_one_tree(name: str) -> None:
    assert issubclass(getattr(errors, name), PerdureError)


@pytest.mark.parametrize(
    "error",
    [TaskNotFound(), TaskExpired(), BacklogFull("Full"), IdempotencyKeyReused(), AlreadySettled(), StoreUnavailable()],
)
def test_what_a_client_may_hear_is_one_short_sentence_without_internals(error: PerdureError) -> None:
    text = str(error)
    assert text
    assert len(text) < 80
    assert "\n" not in text
    assert not set("/{}'\"_") & set(text)


def test_a_mismatch_says_where_and_both_sides_and_what_to_do() -> None:
    error = JournalMismatch("3.0/1", "has step 'charge'", "comes there with sleep")
    assert error.place == "3.0/1"
    assert "at place 3.0/1 the journal has step 'charge', and the code comes there with sleep." in str(error)
    assert "give a changed tool another version" in str(error)
    assert str(error).endswith("take what differs between runs (a clock, chance) from a step.")


def test_a_failed_step_names_itself_and_what_it_came_to() -> None:
    error = StepFailed("charge", "ConnectionError", "refused", places=("3",), detail={"kind": "tool"})
    assert str(error) == "The step 'charge' failed: ConnectionError: refused"
    assert (error.name, error.type, error.message) == ("charge", "ConnectionError", "refused")
    assert (error.places, error.detail) == (("3",), {"kind": "tool"})


def test_a_failed_step_whose_error_said_nothing_is_named_all_the_same() -> None:
    error = StepFailed("charge", "ConnectionError", "")
    assert str(error).startswith("The step 'charge' failed")
    assert (error.type, error.places, error.detail) == ("ConnectionError", (), None)


def test_an_interrupted_step_names_itself_and_claims_to_know_nothing_of_its_effect() -> None:
    error = StepInterrupted("charge")
    assert error.name == "charge"
    assert str(error).startswith("The step 'charge' may run at most once, and was begun before")
    assert str(error).endswith("not known")


@pytest.mark.parametrize("kind", [BacklogFull, StoreUnavailable])
def test_an_error_that_may_pass_says_when_to_try_again(kind: type[BacklogFull] | type[StoreUnavailable]) -> None:
    assert kind("full").retry_after_ms > 0
    assert kind("full", retry_after_ms=250).retry_after_ms == 250
