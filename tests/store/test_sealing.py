"""Values on their way to a store's texts and back, with keys and without."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import NotStorable, StoreUnusable, Unreadable
from perdure.domain.model import JSON, Owner
from perdure.domain.timeline import EventKind
from perdure.store import codec
from perdure.store.keys import MARK, KeyRing
from perdure.store.sealing import BLIND, CLEAR, SEALED, Codec, Unopened, check, codec_for, verifying
from tests.store.sealed import NEW, OLD, OTHER
from tests.store.support import ADA, BOB, ELSEWHERE

ID = "tsk_00000000000000000000000000000001"
OLDER, TURNED, NEWER = (codec_for(KeyRing(*keys)) for keys in ((OLD,), (NEW, OLD), (NEW,)))
BACK = codec_for(KeyRing("clear", NEW, OLD))
ALL = [CLEAR, OLDER, TURNED, BACK]

words: st.SearchStrategy[str] = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    st.sampled_from(["~", "~~", "~1.", "~~1.old.AAAA", "~1.old.AAAA", "~~~"]),
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab~"), inner),
)


@given(values, st.sampled_from(ALL))
def test_a_value_comes_back_as_it_was(value: JSON, held: Codec) -> None:
    assert held.decode(held.encode(value, ADA, ID, "result"), ADA, ID, "result") == value


@given(words, st.sampled_from(ALL))
def test_words_come_back_as_they_were_whatever_they_begin_with(text: str, held: Codec) -> None:
    assert held.decode_words(held.encode_words(text, ADA, ID, "message"), ADA, ID, "message") == text


@given(values, words)
def test_without_keys_values_are_stored_as_ever_and_words_but_for_a_tilde_at_their_beginning(
    value: JSON, text: str
) -> None:
    assert CLEAR.encode(value, ADA, ID, "result") == codec.encode(value)
    assert CLEAR.encode_words(text, ADA, ID, "message") == ("~" + text if text.startswith("~") else text)


@given(values, words, st.sampled_from([OLDER, TURNED]))
def test_what_is_sealed_begins_as_nothing_else_does(value: JSON, text: str, held: Codec) -> None:
    assert held.encode(value, ADA, ID, "result").startswith(MARK)
    assert held.encode_words(text, ADA, ID, "message").startswith(MARK)
    assert not CLEAR.encode_words(text, ADA, ID, "message").startswith(MARK)


@given(values, words, st.sampled_from(ALL), st.sampled_from([TURNED, BACK]))
def test_what_is_sealed_anew_is_as_if_it_had_been_stored_so(value: JSON, text: str, before: Codec, now: Codec) -> None:
    sealed = now.resealed(before.encode(value, ADA, ID, "result"), ADA, ID, "result")
    said = now.resealed_words(before.encode_words(text, ADA, ID, "digest"), ADA, ID, "digest")
    assert now.decode(sealed, ADA, ID, "result") == value
    assert now.decode_words(said, ADA, ID, "digest") == text
    assert sealed.startswith(MARK) == said.startswith(MARK) == (now is not BACK)
    assert now.resealed(sealed, ADA, ID, "result") == sealed
    assert now.resealed_words(said, ADA, ID, "digest") == said


def test_without_keys_nothing_is_sealed_anew_and_what_is_sealed_can_not_be() -> None:
    assert CLEAR.resealed("[1]", ADA, ID, "result") == "[1]"
    assert CLEAR.resealed_words("~~a", ADA, ID, "message") == "~~a"
    with pytest.raises(Unreadable):
        CLEAR.resealed(OLDER.encode([1], ADA, ID, "result"), ADA, ID, "result")
    with pytest.raises(Unreadable):
        CLEAR.resealed_words(OLDER.encode_words("a", ADA, ID, "message"), ADA, ID, "message")


def test_an_old_status_message_with_one_tilde_is_taken_as_it_is() -> None:
    assert [each.decode_words("~ 3 left", ADA, ID, "message") for each in ALL] == ["~ 3 left"] * 4


@pytest.mark.parametrize(
    ("owner", "id_", "what"),
    [
        (BOB, ID, ("entry", "0")),
        (ELSEWHERE, ID, ("entry", "0")),
        (ADA, ID[:-1] + "2", ("entry", "0")),
        (ADA, ID, ("entry", "1")),
        (ADA, ID, ("result",)),
        (Owner("acme\0ada", ""), ID, ("entry", "0")),
    ],
)
def test_a_sealed_value_opens_in_its_own_place_only(owner: Owner, id_: str, what: tuple[str, ...]) -> None:
    sealed = OLDER.encode({"a": 1}, ADA, ID, "entry", "0")
    with pytest.raises(Unreadable):
        OLDER.decode(sealed, owner, id_, *what)


@pytest.mark.parametrize("held", [CLEAR, NEWER, codec_for(KeyRing(OTHER))])
def test_what_can_not_be_opened_is_an_error_that_names_the_key_and_is_logged_once(
    held: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = OLDER.encode("secret", ADA, ID, "entry", "7")
    for _ in range(3):
        with pytest.raises(Unreadable, match="sealed under the key 'old'") as caught:
            held.decode(sealed, ADA, ID, "entry", "7")
        assert caught.value.key_id == "old"
    with pytest.raises(Unreadable):
        held.decode_object(sealed, ADA, ID, "entry", "7")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert sealed not in record.getMessage()
    assert ID not in record.getMessage()


def test_a_status_message_that_can_not_be_opened_is_other_words_and_stays_as_it_is() -> None:
    sealed = OLDER.encode_message("secret", ADA, ID)
    message = NEWER.decode_message(sealed, ADA, ID)
    assert isinstance(message, Unopened)
    assert message == "The status message can't be read"
    assert NEWER.encode_message(message, ADA, ID) == sealed
    assert OLDER.decode_message(sealed, ADA, ID) == "secret"


def test_of_the_timeline_the_notes_are_sealed_that_quote_errors() -> None:
    for kind in EventKind:
        stored = OLDER.encode_note(kind, "detail", ADA, ID)
        assert stored.startswith(MARK) == (kind in (EventKind.RETRY, EventKind.STEP_RETRY))
        assert OLDER.decode_note(kind, stored, ADA, ID) == "detail"


@pytest.mark.parametrize("held", ALL)
def test_what_no_store_takes_is_refused_with_keys_too(held: Codec) -> None:
    with pytest.raises(NotStorable):
        held.encode(float("nan"), ADA, ID, "result")
    with pytest.raises(NotStorable):
        held.encode_words("a\0b", ADA, ID, "message")
    with pytest.raises(NotStorable):
        held.encode_note(EventKind.SETTLED, "\ud800", ADA, ID)


def test_text_that_is_no_json_and_was_not_sealed_was_damaged(caplog: pytest.LogCaptureFixture) -> None:
    for held in (codec_for(None), codec_for(KeyRing(OLD))):
        caplog.clear()
        for _ in range(2):
            with pytest.raises(Unreadable, match="was damaged") as caught:
                held.decode("no json", ADA, ID, "result")
            assert caught.value.key_id is None
        with pytest.raises(Unreadable, match="was damaged"):
            held.decode_object("[1]", ADA, ID, "error")
        assert [record.levelname for record in caplog.records] == ["CRITICAL"] * 2
    assert (BLIND.decode("no json", ADA, ID, "result"), BLIND.decode_object("[1]", ADA, ID, "params")) == ({}, {})


def test_whoever_needs_nothing_that_is_sealed_passes_it_over() -> None:
    assert BLIND.decode(OLDER.encode([1], ADA, ID, "result"), ADA, ID, "result") == {}
    assert BLIND.decode_object(OLDER.encode({}, ADA, ID, "error"), ADA, ID, "error")["code"] == SEALED
    assert BLIND.decode_words(OLDER.encode_words("a", ADA, ID, "message"), ADA, ID, "message") == "(sealed)"
    assert BLIND.decode("[1]", ADA, ID, "result") == [1]
    assert BLIND.decode_words("~~a", ADA, ID, "message") == "~a"


# -- start-up ----------------------------------------------------------------------------------------------------------


def sample(*stored: str) -> list[tuple[str, str, str, str]]:
    return [(ID, ADA.tenant, ADA.principal, each) for each in stored]


def params(held: Codec) -> str:
    return held.encode({"a": 1}, ADA, ID, "params")


def test_who_verifies_opens_everything_and_stores_nothing_anew() -> None:
    held = verifying(KeyRing(NEW, OLD))
    for by in (CLEAR, OLDER, NEWER):
        for text in (by.encode({"a": 1}, ADA, ID, "params"), by.encode("~words", ADA, ID, "params")):
            assert held.resealed(text, ADA, ID, "params") == text
        words = by.encode_words("~words", ADA, ID, "digest")
        assert held.resealed_words(words, ADA, ID, "digest") == words
    for lacking in (verifying(KeyRing(NEW)), verifying(KeyRing("clear", "old:lost"))):
        with pytest.raises(Unreadable):
            lacking.resealed(OLDER.encode(1, ADA, ID, "params"), ADA, ID, "params")
        with pytest.raises(Unreadable):
            lacking.resealed_words(OLDER.encode_words("words", ADA, ID, "digest"), ADA, ID, "digest")
    with pytest.raises(Unreadable, match="was damaged: JSONDecodeError"):
        held.resealed("{", ADA, ID, "params")
    with pytest.raises(Unreadable, match="does not open"):
        held.resealed(NEWER.encode(1, BOB, ID, "params"), ADA, ID, "params")


def test_a_start_with_the_right_keys_is_let_pass() -> None:
    for held, stored in [
        (CLEAR, [params(CLEAR)]),
        (CLEAR, []),
        (OLDER, [params(CLEAR), params(OLDER)]),
        (TURNED, [params(NEWER), params(OLDER)]),
        (BACK, [params(OLDER)]),
        (BLIND, [params(OLDER)]),
    ]:
        check(sample(*stored), held, "tasks.db")


@pytest.mark.parametrize("held", [CLEAR, NEWER, codec_for(KeyRing(OTHER))])
def test_a_start_with_others_is_refused_and_the_key_is_named(held: Codec) -> None:
    with pytest.raises(StoreUnusable, match=r"tasks\.db has tasks that were sealed under the key 'old', and it is not"):
        check(sample(params(CLEAR), params(OLDER)), held, "tasks.db")


def test_a_start_without_a_key_that_is_known_to_be_lost_is_let_pass_and_no_other() -> None:
    for ring in (KeyRing(NEW, "old:lost"), KeyRing("clear", "old:lost")):
        check(sample(params(OLDER)), codec_for(ring), "tasks.db")
    with pytest.raises(StoreUnusable, match=r"under the key 'old'.* if it is lost for good, put old:lost there"):
        check(sample(params(OLDER)), codec_for(KeyRing(NEW, "older:lost")), "tasks.db")


def test_whoever_is_lenient_may_lack_any_key_but_has_no_other_of_its_name() -> None:
    check(sample(params(OLDER)), codec_for(KeyRing(NEW), lenient=True), "tasks.db")
    with pytest.raises(StoreUnusable, match="or another one goes by its id"):
        check(sample(params(OLDER)), codec_for(KeyRing(OTHER), lenient=True), "tasks.db")


def test_one_value_that_was_changed_keeps_nobody_from_starting() -> None:
    changed = OLDER.encode({"a": 1}, BOB, ID, "params")
    check(sample(changed, params(OLDER)), OLDER, "tasks.db")
