"""The bounds of one task."""

import math
from dataclasses import fields
from typing import Any

import pytest

from perdure.domain.errors import ConfigurationError, LimitExceeded
from perdure.domain.limits import MAX_DEPTH, Limits, cut, within

BOUNDS = [bound.name for bound in fields(Limits)]


def test_the_bounds_are_what_the_documentation_promises_unless_told_otherwise() -> None:
    assert Limits() == Limits(
        step_name=200, entries=10_000, step_result=1024**2, result=16 * 1024**2, idempotency_key=200
    )


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_of_one_is_a_bound(name: str) -> None:
    assert getattr(Limits(**{name: 1}), name) == 1


@pytest.mark.parametrize("value", [0, -1, -(10**30), True, 1.5, math.nan, math.inf, "200", None, [200]])
@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_that_is_none_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"\b{name} must be a whole number of at least 1"):
        Limits(**{name: value})


def test_nothing_nests_deeper_than_can_be_stored() -> None:
    Limits(depth=MAX_DEPTH)
    with pytest.raises(ConfigurationError, match="depth must be at most 100"):
        Limits(depth=MAX_DEPTH + 1)


@pytest.mark.parametrize(("text", "kept"), [("", ""), ("abc", "abc"), ("abcd", "ab…"), ("äöüß" * 9, "äö…")])
def test_a_text_is_cut_where_it_is_too_long_and_says_so(text: str, kept: str) -> None:
    assert cut(text, 3) == kept


def test_what_is_within_its_limit_is_not_refused() -> None:
    within("The thing", 10, 10, "things")
    with pytest.raises(LimitExceeded, match=r"^The thing takes 11 bytes as JSON, and 10 is the limit \(things\)$"):
        within("The thing", 11, 10, "things")
    with pytest.raises(LimitExceeded, match=r"is the limit \(things\): make it smaller$"):
        within("The thing", 11, 10, "things", "make it smaller")
