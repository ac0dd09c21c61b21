"""What text is a task id."""

import secrets
import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain import ids
from perdure.domain.errors import MalformedTaskId

SECRET = "abcdefghijklmnopqrstuvwxyz234567"


@given(st.binary(min_size=ids.SECRET_BYTES, max_size=ids.SECRET_BYTES))
def test_every_minted_id_is_an_id(random: bytes) -> None:
    minted = ids.mint(lambda n: random[:n])
    assert ids.parse(minted) == minted


def test_an_id_takes_at_least_128_random_bits_from_the_source_it_is_given() -> None:
    asked: list[int] = []

    def source(n: int) -> bytes:
        asked.append(n)
        return bytes(n)

    ids.mint(source)
    assert asked == [ids.SECRET_BYTES]
    assert ids.SECRET_BYTES * 8 >= 128


@given(st.sets(st.binary(min_size=ids.SECRET_BYTES, max_size=ids.SECRET_BYTES), min_size=2, max_size=2))
def test_no_random_bit_is_lost(two: set[bytes]) -> None:
    one, other = (ids.mint(lambda _, random=random: random) for random in two)
    assert one != other


def test_what_a_log_shows_of_an_id_leaves_as_many_bits_unknown_as_a_key_must_have() -> None:
    for task_id in (f"tsk_{SECRET}", f"tsk_eu1_{SECRET}"):
        shown = ids.abbreviated(task_id)
        assert task_id.startswith(shown.removesuffix("…"))
        assert shown.endswith(f"_{SECRET[:6]}…"), "enough to tell tasks apart"
        assert (len(task_id) - len(shown.removesuffix("…"))) * 5 >= 128


def test_an_id_is_the_same_in_a_header_a_url_and_after_case_folding() -> None:
    minted = ids.mint(secrets.token_bytes)
    assert set(minted) <= set(string.ascii_lowercase + string.digits + "_")
    assert quote(minted, safe="") == minted
    assert minted.casefold() == minted


@pytest.mark.parametrize("tag", ["a", "7", "eu1", "shard042"])
def test_an_id_with_a_placement_tag_is_an_id(tag: str) -> None:
    assert ids.parse(f"tsk_{tag}_{SECRET}") == f"tsk_{tag}_{SECRET}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tsk_",
        SECRET,
        f"tsk{SECRET}",
        f"TSK_{SECRET}",
        f"tsk_{SECRET.upper()}",
        f"tsk_{SECRET[:-1]}",
        f"tsk_{SECRET}a",
        f"tsk_{SECRET[:-1]}1",
        f"tsk_{SECRET[:-1]}é",
        f"tsk_{SECRET[:-1]}\N{LATIN SMALL LETTER LONG S}",
        f"tsk_{SECRET[:-1]}\N{ARABIC-INDIC DIGIT TWO}",
        f"tsk_{SECRET[:-1]}\ud800",
        f"tsk_{SECRET}\n",
        f" tsk_{SECRET}",
        f"tsk_{SECRET}\0",
        f"tsk__{SECRET}",
        f"tsk_ninechars_{SECRET}",
        f"tsk_EU_{SECRET}",
        f"tsk_a_b_{SECRET}",
        f"tsk_../_{SECRET}",
        "786512e2-9e0d-44bd-8f29-789f320fe840",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(MalformedTaskId):
        ids.parse(text)


@given(st.text())
def test_whatever_text_comes_it_is_an_id_or_malformed(text: str) -> None:
    try:
        assert ids.parse(text) == text
    except MalformedTaskId:
        assert not text.startswith(f"tsk_{SECRET}")


@pytest.mark.parametrize("task_id", [f"tsk_{SECRET}", f"tsk_eu1_{SECRET}"])
def test_whatever_part_of_an_id_somebody_has_it_is_how_the_id_begins(task_id: str) -> None:
    assert ids.beginning(task_id) == task_id
    assert task_id.startswith(ids.beginning(ids.abbreviated(task_id)))
    assert ids.beginning(f"{task_id[:9]}...") == task_id[:9]
    assert ids.beginning("tsk_") == "tsk_"


@pytest.mark.parametrize("text", ["", "tsk", "task_abc", "tsk_ABC", "tsk_a%", "tsk_a b", "tsk_…a", "tsk_é", "\x1b[2J"])
def test_what_no_id_begins_with_is_none(text: str) -> None:
    with pytest.raises(MalformedTaskId):
        ids.beginning(text)
