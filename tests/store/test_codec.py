"""JSON as it lies in a store."""

import json
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import NotStorable
from perdure.domain.limits import MAX_DEPTH
from perdure.domain.model import JSON
from perdure.store.codec import UNREADABLE, decode, decode_object, encode, is_plain, mended, named, plain

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(alphabet=st.characters(codec="utf-8"))
)
keys = st.text(alphabet=st.characters(codec="utf-8"))
values: st.SearchStrategy[JSON] = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20
)


@given(values)
def test_what_is_stored_comes_back_equal(value: JSON) -> None:
    assert decode(encode(value)) == value


@given(values)
def test_the_text_is_valid_json_for_every_reader_and_utf8_can_carry_it(value: JSON) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(encode(value).encode("utf-8"), parse_constant=refuse)


def test_the_text_is_compact_and_keeps_the_order_of_keys() -> None:
    assert encode({"b": [1, 2], "a": "ü"}) == '{"b":[1,2],"a":"ü"}'
    assert list(decode_object('{"b":1,"a":2}')) == ["b", "a"]


def deep(levels: int) -> JSON:
    value: JSON = None
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        "\ud800",
        {"\udfff": 1},
        [["\ud800\ud800"]],
        {1, 2},
        b"bytes",
        object(),
        {("a", "b"): 1},
        deep(100_000),
        10**5_000,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_such_form_is_refused(value: JSON) -> None:
    with pytest.raises(NotStorable, match="can't be stored as JSON"):
        encode(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[JSON] = []
    value.append(value)
    with pytest.raises(NotStorable):
        encode(value)


def test_a_refusal_carries_nothing_of_the_value() -> None:
    with pytest.raises(NotStorable) as caught:
        encode({"secret": "hunter2", "bad": float("nan")})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "ü\0"], ids=["surrogate", "null", "both"])
def test_plain_text_is_text_that_every_store_can_hold(text: str) -> None:
    assert plain("Grüße 🦊") == "Grüße 🦊"
    with pytest.raises(NotStorable):
        plain(text)
    assert [is_plain("Grüße", "🦊"), is_plain("fine", text)] == [True, False]


def test_text_that_its_author_has_to_find_is_named_when_it_is_refused() -> None:
    assert named("The step", "Grüße 🦊") == "Grüße 🦊"
    with pytest.raises(NotStorable, match=r"^The step 'a\\x00b' can't be stored: Text with a null"):
        named("The step", "a\0b")


def test_text_is_mended_until_it_is_plain() -> None:
    assert plain(mended("a\ud800 null \0 🦊")) == "a? null ? 🦊"


def test_a_null_within_a_value_is_an_escape() -> None:
    assert encode({"\0": "\0"}) == '{"\\u0000":"\\u0000"}'


def nested(depth: int, width: int = 1) -> JSON:
    """A list of `depth` levels, counting the outermost, with `width` more lists beside each."""
    value: JSON = []
    for _ in range(depth - 1):
        value = [value, *([[]] * (width - 1))]
    return value


@pytest.mark.parametrize("width", [1, 3])
def test_a_value_as_deep_as_the_bound_is_stored_and_a_deeper_one_is_not(width: int) -> None:
    deepest = nested(MAX_DEPTH, width)
    assert decode(encode(deepest)) == deepest
    with pytest.raises(NotStorable):
        encode(nested(MAX_DEPTH + 1, width))


def test_depth_is_what_counts_and_not_the_number_of_brackets() -> None:
    wide: JSON = [{"a": [n]} for n in range(500)]
    assert decode(encode(wide)) == wide
    assert decode(encode("[{" * 500)) == "[{" * 500


@pytest.mark.parametrize("value", [1, None, {"pct": 5}, ["a"]])
def test_what_is_no_text_is_refused_where_text_is_wanted(value: object) -> None:
    """A number would be bound as it is and come back as text: another key than the one that was asked under."""
    with pytest.raises(NotStorable, match=type(value).__name__):
        plain(cast("str", value))


@pytest.mark.parametrize("text", ["", "[1", '"\0"', "nul", "[" * 100_000, '{"a" 1}', cast("str", None)])
def test_what_is_no_value_any_more_can_not_be_read(text: str) -> None:
    for read in (decode, decode_object):
        with pytest.raises(UNREADABLE):
            read(text)


@pytest.mark.parametrize("text", ["1", "null", "[]", '"text"'])
def test_so_is_what_should_have_been_an_object(text: str) -> None:
    with pytest.raises(UNREADABLE):
        decode_object(text)
