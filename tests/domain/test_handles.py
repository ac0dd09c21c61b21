"""Handles: one text each, which nobody guesses, and which shows in no log."""

import base64
import re

import pytest

from perdure.domain.errors import TaskNotFound
from perdure.domain.handles import TOKEN_BYTES, Handle, mint_token

TOKEN = "t" * 32
TASK = "tsk_" + "a" * 32


def test_a_token_is_all_of_the_random_bytes_and_part_of_a_handle() -> None:
    token = mint_token(lambda count: bytes(range(0xE8, 0xE8 + count)))
    assert base64.urlsafe_b64decode(token) == bytes(range(0xE8, 0xE8 + TOKEN_BYTES))
    assert Handle.parse(Handle(TASK, "0", token).id).token == token


@pytest.mark.parametrize("place", ["0", "17", "3.0/1", "3.12/0.1/40"])
def test_a_handle_is_its_text_and_comes_back_from_it(place: str) -> None:
    handle = Handle(TASK, place, TOKEN)
    assert handle.id == str(handle) == f"{handle}"
    assert Handle.parse(handle.id) == handle
    # A bearer token (RFC 6750), and nothing that a shell or a URL would read otherwise.
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", handle.id)


def test_how_it_looks_in_a_log_does_not_show_the_token() -> None:
    handle = Handle(TASK, "0", TOKEN)
    assert TASK in repr(handle)
    assert TOKEN not in repr(handle)
    assert TOKEN not in repr([handle])


NO_HANDLES = [
    "",
    "~",
    "~~",
    TASK,
    f"{TASK}~0",
    f"{TASK}~0~",
    f"{TASK}~~{TOKEN}",
    f"{TASK}~0~{TOKEN[:-1]}",
    f"{TASK}~0~{TOKEN}x",
    f"{TASK}~0~{TOKEN}~",
    f"{TASK}~0~{TOKEN}\n",
    f" {TASK}~0~{TOKEN}",
    f"{TASK}~x~{TOKEN}",
    f"{TASK}~-1~{TOKEN}",
    f"{TASK}~0-~{TOKEN}",
    f"{TASK}~1.2~{TOKEN}",
    f"{TASK}~٣~{TOKEN}",
    f"{TASK}~0~{'é' * 32}",
    f"{TASK[:-1]}~0~{TOKEN}",
    f"tsk_~0~{TOKEN}",
    "x" * 100_000,
    f"{TASK}~{'1.1-' * 10_000}~{TOKEN}",
    "\ud800",
]


@pytest.mark.parametrize("bad", NO_HANDLES, ids=lambda bad: bad[:60].encode("unicode_escape").decode())
def test_what_is_no_handle_is_one_that_nobody_knows(bad: str) -> None:
    with pytest.raises(TaskNotFound):
        Handle.parse(bad)
