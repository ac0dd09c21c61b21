"""Strategies in proportions.

`one_of` gives each alternative of an alternative the same share. What is wrong in many ways would leave hardly any room
for what is right, and nothing would ever get past the first check.
"""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

__all__ = ["mixed"]

T = TypeVar("T")


def mixed(*shares: tuple[int, SearchStrategy[T]]) -> SearchStrategy[T]:
    """Values of all of these, each as often as its number says. What comes first is what others are shrunk to."""
    ladder = [number for number, (share, _) in enumerate(shares) for _ in range(share)]
    return st.sampled_from(ladder).flatmap(lambda number: shares[number][1])
