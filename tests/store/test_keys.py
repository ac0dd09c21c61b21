"""The key ring: what is a key, what it seals and opens, and that nobody ever sees one."""

import contextlib
import copy
import pickle
from base64 import b64decode, b64encode, urlsafe_b64encode
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import ConfigurationError, Unreadable
from perdure.store.keys import MARK, KeyRing, key_id_of, new_key
from tests.store.sealed import NEW, OLD, OTHER, key

SECRET = b64encode(b"x" * 32).decode()
BOUND = b"a place"


@given(st.text(), st.binary())
def test_what_was_sealed_opens_in_its_place(text: str, bound: bytes) -> None:
    ring = KeyRing(OLD)
    sealed = ring.seal(text, bound)
    assert sealed.isascii()
    assert sealed.startswith(f"{MARK}old.")
    assert key_id_of(sealed) == "old"
    assert ring.open(sealed, bound) == text


@given(st.text(), st.binary(), st.binary())
def test_and_nowhere_else(text: str, bound: bytes, other: bytes) -> None:
    ring = KeyRing(OLD)
    if bound != other:
        with pytest.raises(Unreadable):
            ring.open(ring.seal(text, bound), other)


def test_no_two_texts_are_sealed_alike() -> None:
    ring = KeyRing(OLD)
    assert len({ring.seal("the same", BOUND) for _ in range(100)}) == 100


HEAD = f"{MARK}old."


@given(st.data())
def test_what_was_changed_does_not_open(data: st.DataObject) -> None:
    ring = KeyRing(OLD)
    raw = bytearray(b64decode(ring.seal("some text", BOUND).removeprefix(HEAD)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unreadable):
        ring.open(HEAD + b64encode(raw).decode(), BOUND)


@given(st.data())
def test_no_text_opens_as_another_than_was_sealed(data: st.DataObject) -> None:
    """Some do as the same: the last character of base64 says the same in several ways."""
    ring = KeyRing(OLD)
    sealed = ring.seal("some text", BOUND)
    at = data.draw(st.integers(len(HEAD), len(sealed) - 1))
    changed = sealed[:at] + data.draw(st.sampled_from("AZaz09+/=.~ é")) + sealed[at + 1 :]
    with contextlib.suppress(Unreadable):
        assert ring.open(changed, BOUND) == "some text"


@pytest.mark.parametrize("broken", ["~1.", "~1.old", "~1.old.", "~1.old.AAAA", "~1.old.%%%", "~1..AAAA", "~1.é.AA"])
def test_what_is_no_sealed_text_at_all_does_not_open(broken: str) -> None:
    with pytest.raises(Unreadable):
        KeyRing(OLD).open(broken, BOUND)


def test_the_first_key_seals_and_all_of_them_open() -> None:
    before, between, after = KeyRing(OLD), KeyRing(NEW, OLD), KeyRing(NEW)
    sealed = before.seal("text", BOUND)
    assert between.open(sealed, BOUND) == "text"
    assert after.open(between.seal("text", BOUND), BOUND) == "text"
    assert (between.ids, between.sealing) == (("new", "old"), "new")
    with pytest.raises(Unreadable, match="sealed under the key 'old' can't be opened, since this process has no such"):
        after.open(sealed, BOUND)


def test_another_key_of_that_name_does_not_open_it() -> None:
    with pytest.raises(Unreadable, match="under the key 'old' does not open: it was changed or moved in the store, or"):
        KeyRing(OTHER).open(KeyRing(OLD).seal("text", BOUND), BOUND)


def test_a_ring_that_begins_with_the_word_clear_opens_and_does_not_seal() -> None:
    ring = KeyRing("clear", OLD)
    assert ring.seal("text", BOUND) == "text"
    assert ring.open(KeyRing(OLD).seal("text", BOUND), BOUND) == "text"
    assert (ring.ids, ring.sealing) == (("old",), None)


@pytest.mark.parametrize("text", [f"{OLD},{NEW}", f"{OLD} {NEW}", f"\n# of 2025\n{OLD}\n\n  # of 2026\n\t{NEW}\n"])
def test_keys_are_read_from_a_text(text: str) -> None:
    assert KeyRing.parse(text).ids == ("old", "new")


def test_a_key_may_be_written_for_urls_and_without_its_padding() -> None:
    raw = bytes(range(224, 256))
    forms = [b64encode(raw).decode(), urlsafe_b64encode(raw).decode(), urlsafe_b64encode(raw).decode().rstrip("=")]
    sealed = KeyRing(f"k:{forms[0]}").seal("text", BOUND)
    assert [KeyRing(f"k:{form}").open(sealed, BOUND) for form in forms] == ["text"] * 3


def test_a_new_key_is_one_and_another_each_time() -> None:
    made = {new_key("2026-11") for _ in range(10)}
    assert len(made) == 10
    assert {KeyRing(each).ids for each in made} == {("2026-11",)}
    with pytest.raises(ConfigurationError, match="the id of a key is"):
        new_key("a:b")


def test_a_key_that_is_lost_opens_nothing_and_says_so() -> None:
    for first in (NEW, "clear"):
        ring = KeyRing(first, "old:lost")
        assert ring.lost == {"old"}
        assert "old" not in ring.ids
        with pytest.raises(Unreadable, match="under the key 'old' can't be opened, since that key is lost"):
            ring.open(KeyRing(OLD).seal("text", BOUND), BOUND)


def test_the_word_clear_alone_is_a_ring_that_seals_and_opens_nothing() -> None:
    ring = KeyRing("clear")
    assert (ring.sealing, ring.ids, ring.seal("text", BOUND)) == (None, (), "text")
    with pytest.raises(Unreadable):
        ring.open(KeyRing(OLD).seal("text", BOUND), BOUND)


def test_what_is_no_text_is_no_ring_either() -> None:
    with pytest.raises(ConfigurationError, match="the keys are a NoneType"):
        KeyRing.parse(cast("str", None))


# -- what is none, and what is said of it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ((), "there is no key"),
        (("k:lost", OLD), "the first key is to seal, and 'k' is lost"),
        ((OLD, "old:lost"), "the key 'old' is there twice"),
        ((7,), "key number 1 is none: write texts, not a int"),
        ((SECRET,), "key number 1 is none: write ID:KEY"),
        ((OLD, SECRET), "key number 2 is none"),
        (("clear", OLD, SECRET), "key number 3 is none"),
        ((f":{SECRET}",), "key number 1 is none"),
        ((f"{SECRET}:new",), "key number 1 is none"),
        ((f"an id:{SECRET}",), "key number 1 is none"),
        ((f"k:{SECRET[:-8]}",), "the key 'k' is none: after its id and a colon come 32 bytes"),
        ((f"k:{SECRET}{SECRET}",), "the key 'k' is none"),
        ((f"k:{SECRET}!",), "the key 'k' is none"),
        ((f"k:é{SECRET}",), "the key 'k' is none"),
        (("k:",), "the key 'k' is none"),
        ((key("k"), key("k", b"2")), "the key 'k' is there twice"),
        ((OLD, "clear"), "key number 2 is none"),
    ],
)
def test_what_is_no_ring_is_refused_without_a_word_of_any_key(keys: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        KeyRing(*keys)
    assert str(caught.value).startswith(said)
    assert caught.value.__cause__ is None
    assert SECRET[:8] not in str(caught.value)


def test_a_ring_shows_the_ids_of_its_keys_and_nothing_else() -> None:
    ring = KeyRing(NEW, OLD)
    assert repr(ring) == str(ring) == "KeyRing('new', 'old')"
    assert repr(KeyRing("clear", OLD)) == "KeyRing('clear', 'old')"
    assert repr(KeyRing("clear")) == "KeyRing('clear')"
    assert repr(KeyRing(NEW, "b:lost", "a:lost")) == "KeyRing('new', 'a:lost', 'b:lost')"
    assert not hasattr(ring, "__dict__")


def test_a_ring_is_not_copied_or_pickled() -> None:
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="is not copied"):
            copied(KeyRing(OLD))
