"""What is taken for a JSON object, and that it goes through unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.model import JSON
from perdure.gateway.rawjson import NotJSON, decode, encode

TEXTS = st.text(st.characters(exclude_categories=[]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_what_goes_through_is_the_same(value: dict[str, JSON]) -> None:
    """Lone surrogates included, which JSON can say and UTF-8 can't."""
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b'"text"',
        b"{",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        b"<html>",
    ],
    ids=lambda data: data[:12].decode("latin-1"),
)
def test_what_is_no_json_object_is_refused_and_not_repeated(data: bytes) -> None:
    with pytest.raises(NotJSON) as caught:
        decode(data)
    assert "html" not in str(caught.value)
