"""The bounds of one task."""

import math
from dataclasses import fields
from typing import Any

import pytest

from perdure.domain.errors import ConfigurationError, LimitExceeded
from perdure.domain.limits import (
    MAX_DEPTH,
    MAX_IDEMPOTENCY_KEY,
    MAX_PLACE,
    MAX_PRINCIPAL,
    MAX_QUESTION_KEY,
    MAX_TENANT,
    MAX_TOOL_NAME,
    Limits,
    cut,
    short,
    within,
)

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


@pytest.mark.parametrize(
    ("name", "most"),
    [("depth", MAX_DEPTH), ("question_key", MAX_QUESTION_KEY), ("idempotency_key", MAX_IDEMPOTENCY_KEY)],
)
def test_no_bound_lets_through_what_some_store_can_not_keep(name: str, most: int) -> None:
    Limits(**{name: most})
    with pytest.raises(ConfigurationError, match=f"{name} must be at most {most}: not every store"):
        Limits(**{name: most + 1})


def test_what_is_part_of_one_key_fits_into_a_row_of_an_index_together() -> None:
    row, besides = 2_704, 100
    assert row - besides >= MAX_TENANT + MAX_PRINCIPAL + 4 * MAX_IDEMPOTENCY_KEY
    assert row - besides >= MAX_TENANT + 4 * MAX_TOOL_NAME + 150, "the method and the version have a part in it"
    assert max(4 * MAX_QUESTION_KEY, MAX_PLACE) <= row - besides


@pytest.mark.parametrize(("text", "kept"), [("", ""), ("abc", "abc"), ("abcd", "ab…"), ("äöüß" * 9, "äö…")])
def test_a_text_is_cut_where_it_is_too_long_and_says_so(text: str, kept: str) -> None:
    assert cut(text, 3) == kept


def test_a_name_that_is_too_long_is_refused_by_its_beginning() -> None:
    short("The name", "n" * 50, 50, "names")
    said = rf"^The name '{'n' * 40}'… has 51 characters, and 50 is the limit \(names\)$"
    with pytest.raises(LimitExceeded, match=said):
        short("The name", "n" * 51, 50, "names")


def test_what_is_within_its_limit_is_not_refused() -> None:
    within("The thing", 10, 10, "things")
    with pytest.raises(LimitExceeded, match=r"^The thing takes 11 bytes as JSON, and 10 is the limit \(things\)$"):
        within("The thing", 11, 10, "things")
    with pytest.raises(LimitExceeded, match=r"is the limit \(things\): make it smaller$"):
        within("The thing", 11, 10, "things", "make it smaller")
