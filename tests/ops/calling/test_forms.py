"""Questions at a terminal: every kind of field, bad input first, and the ways to say nothing."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

from perdure.ops.calling import forms
from perdure.ops.calling.screen import Keyboard, Screen
from tests.ops.calling.terminal import CTRL_D, Terminal
from tests.support import PATIENCE

JSON = dict[str, Any]


def form(*required: str, message: str = "Please say.", **properties: JSON) -> str:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return json.dumps({"message": message, "requestedSchema": schema})


class Filling(Terminal):
    """A terminal at which a form is filled. Made by `filling`."""

    task: asyncio.Task[ElicitResult]


@asynccontextmanager
async def filling(params: str, *, typed_before: str = "") -> AsyncGenerator[Filling]:
    """`params` is JSON: the parameters of `elicitation/create`."""
    raw = json.loads(params)
    kind = ElicitRequestURLParams if raw.get("mode") == "url" else ElicitRequestFormParams
    terminal = Filling()
    if typed_before:
        terminal.type(typed_before)
        await terminal.until(typed_before)
    with os.fdopen(os.dup(terminal.tty), "w") as out:
        filled = forms.fill(Screen(out, live=True, colour=False), Keyboard(terminal.tty), kind.model_validate(raw))
        terminal.task = asyncio.create_task(filled)
        try:
            yield terminal
        finally:
            terminal.task.cancel()
            await asyncio.wait([terminal.task])
            terminal.close()


async def answer(terminal: Filling) -> JSON:
    said = await asyncio.wait_for(terminal.task, PATIENCE)
    return said.model_dump(mode="json", by_alias=True, exclude_none=True)


async def content(terminal: Filling) -> JSON:
    said = await answer(terminal)
    assert said["action"] == "accept"
    return said["content"]


async def test_a_text_is_held_to_its_length_and_its_format() -> None:
    properties: JSON = {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 5, "description": "In full."},
        "mail": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
    }
    async with filling(form("name", "mail", "day", **properties)) as terminal:
        await terminal.until("  In full.")
        await terminal.answers("Your name (at least 2 characters, at most 5 characters): ", "")
        await terminal.answers('  it is needed; "" is an empty text', "A")
        await terminal.answers("  it must have at least 2 characters", "Augusta")
        await terminal.answers("  it must have at most 5 characters", "Ada ")
        await terminal.answers("mail (email): ", "nobody")
        await terminal.answers("  it must be a valid email", "ada@example.com")
        await terminal.answers("day (date): ", "tomorrow")
        await terminal.answers("  it must be a valid date", "2026-12-01")
        assert await content(terminal) == {"name": "Ada ", "mail": "ada@example.com", "day": "2026-12-01"}


async def test_numbers_are_numbers_within_their_bounds() -> None:
    properties: JSON = {
        "copies": {"type": "integer", "minimum": 1, "maximum": 9},
        "price": {"type": "number", "exclusiveMinimum": 0},
    }
    async with filling(form("copies", "price", **properties)) as terminal:
        await terminal.answers("copies (a whole number, at least 1, at most 9): ", "two")
        await terminal.answers("  it must be a whole number", "2.5")
        await terminal.answers("copies (a whole number, at least 1, at most 9): 2.5\n  it must be a whole number", "0")
        await terminal.answers("  it must be at least 1", "10")
        await terminal.answers("  it must be at most 9", "3")
        await terminal.answers("price (a number, more than 0): ", "nan")
        await terminal.answers("  it must be a number", "1_000")
        await terminal.answers("price (a number, more than 0): 1_000\n  it must be a number", "0.5")
        assert await content(terminal) == {"copies": 3, "price": 0.5}


async def test_yes_and_no_are_said_in_words() -> None:
    async with filling(form("sure", sure={"type": "boolean"})) as terminal:
        await terminal.answers("sure (yes or no): ", "perhaps")
        await terminal.answers("  it must be yes or no", "N")
        assert await content(terminal) == {"sure": False}


async def test_a_choice_is_made_by_number_by_title_or_by_value() -> None:
    properties: JSON = {
        "size": {"type": "string", "enum": ["s", "l"]},
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]},
        "old": {"type": "string", "enum": ["1", "2"], "enumNames": ["Two", "One"]},
    }
    async with filling(form("size", "colour", "old", **properties)) as terminal:
        await terminal.until("  1. s\n    2. l\n")
        await terminal.answers("size (one of these): ", "3")
        await terminal.answers("  '3' is none of s, l", "2")
        await terminal.until("  1. Red  (r)\n    2. Green  (g)\n")
        await terminal.answers("colour (one of these): ", "green")
        await terminal.answers("old (one of these): ", "1")
        assert await content(terminal) == {"size": "l", "colour": "g", "old": "1"}


async def test_several_are_chosen_with_commas_between() -> None:
    titled = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}, {"const": "b", "title": "Blue"}]
    properties: JSON = {
        "colours": {"type": "array", "items": {"anyOf": titled}, "minItems": 2, "maxItems": 2, "uniqueItems": True},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "l"]}},
    }
    async with filling(form("colours", "sizes", **properties)) as terminal:
        prompt = "colours (any of these, with commas between, at least 2, at most 2): "
        await terminal.answers(prompt, "1")
        await terminal.answers("  there must be at least 2", "1, pink")
        await terminal.answers("  'pink' is none of Red, Green, Blue", "1,1")
        await terminal.answers("  nothing may be there twice", "red, 3")
        await terminal.answers("sizes (any of these, with commas between): ", "")
        assert await content(terminal) == {"colours": ["r", "b"], "sizes": []}


async def test_an_empty_line_takes_the_default_or_leaves_a_field_out() -> None:
    properties: JSON = {
        "size": {"type": "string", "default": "large"},
        "sure": {"type": "boolean", "default": True},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a", "b"]},
        "note": {"type": "string"},
        "empty": {"type": "string"},
    }
    async with filling(form("size", "sure", "empty", **properties)) as terminal:
        await terminal.answers("size [large]: ", "")
        await terminal.answers("sure (yes or no) [yes]: ", "")
        await terminal.answers("tags (any of these, with commas between, may be left out) [a, b]: ", "")
        await terminal.answers("note (may be left out): ", "")
        await terminal.answers("empty: ", '""')
        assert await content(terminal) == {"size": "large", "sure": True, "tags": ["a", "b"], "empty": ""}


async def test_what_no_form_knows_is_said_in_json() -> None:
    async with filling(form("any", any={"type": ["integer", "array"], "minimum": 1, "title": "Any"})) as terminal:
        await terminal.answers("Any (JSON, at least 1): ", "here")
        await terminal.answers("  it is no JSON", '{"x": 1}')
        await terminal.answers("  an answer can't carry that", "0")
        await terminal.answers("  it must be at least 1", '["x"]')
        assert await content(terminal) == {"any": ["x"]}


@pytest.mark.parametrize(("typed", "action"), [("/decline\n", "decline"), ("/cancel\n", "cancel"), (CTRL_D, "cancel")])
async def test_a_word_declines_a_question_or_closes_it(typed: str, action: str) -> None:
    async with filling(form("a", "b", a={"type": "string"}, b={"type": "integer"})) as terminal:
        await terminal.answers("a: ", "something")
        await terminal.until("b (a whole number): ")
        terminal.type(typed)
        assert await answer(terminal) == {"action": action}


async def test_the_words_can_be_said_as_text_too() -> None:
    async with filling(form("a", a={"type": "string"})) as terminal:
        await terminal.answers("a: ", "//decline")
        assert await content(terminal) == {"a": "/decline"}


async def test_a_question_without_fields_wants_a_yes() -> None:
    async with filling(form(message="Delete it?")) as terminal:
        await terminal.answers("Agree? (yes or no): ", "")
        await terminal.answers("  say yes or no", "y")
        assert await answer(terminal) == {"action": "accept", "content": {}}


async def test_what_was_typed_before_a_question_is_no_answer_to_it() -> None:
    async with filling(form("sure", sure={"type": "boolean"}), typed_before="yes\n") as terminal:
        await terminal.until("sure (yes or no): ")
        assert not terminal.task.done()
        await terminal.answers("sure (yes or no): ", "no")
        assert await content(terminal) == {"sure": False}


async def test_a_page_is_named_by_its_host_and_opened_by_nobody() -> None:
    params = json.dumps({"mode": "url", "message": "Sign in.", "url": "https://b\u0430nk.example/\u202egnp.exe"})
    async with filling(params) as terminal:
        await terminal.until("  A page of xn--bnk-6cd.example:")
        await terminal.answers("Will you go there? (yes or no): ", "no")
        assert await answer(terminal) == {"action": "decline"}
        assert "\u202e" not in terminal.text


async def test_a_hostile_question_paints_nothing() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\nperdure: all well\x08\x7f"
    field = {"type": "string", "title": evil, "description": evil, "enum": [evil], "default": evil}
    async with filling(form("a", message=evil, a=field)) as terminal:
        await terminal.answers("(one of these) [", "1")
        assert (await content(terminal))["a"] == evil
        assert not any(line.startswith("perdure") for line in terminal.text.splitlines())
