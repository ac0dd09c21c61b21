"""A question of a task, put to the person at the terminal, field by field.

The words that decline a question and close it without an answer work in every field. A value that does not fit is
refused with the reason and asked for again; so is a form whose fields don't fit together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import anyio
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from perdure.ops import text

from .fields import NOTHING, Field, fields, misfits
from .screen import Keyboard, Screen
from .typed import Unfit

__all__ = ["CANCEL", "DECLINE", "described", "fill", "host"]

DECLINE: Final = "/decline"
CANCEL: Final = "/cancel"
_WORDS: Final[dict[str, Literal["decline", "cancel"]]] = {DECLINE: "decline", CANCEL: "cancel"}


class _Left(Exception):
    """The person said one of the words."""

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        self.action: Literal["decline", "cancel"] = action
        super().__init__(action)


async def fill(screen: Screen, keyboard: Keyboard, asked: ElicitRequestParams) -> ElicitResult:
    """What the person says."""
    with screen.form():
        keyboard.forget()
        screen.told(f"? {text.block(asked.message)}".replace("\n", "\n? "), "asks")
        form = _Form(screen, keyboard)
        try:
            if isinstance(asked, ElicitRequestFormParams):
                return ElicitResult(action="accept", content=await form.filled(asked.requested_schema))
            await form.visited(asked.url)
            return ElicitResult(action="accept")
        except _Left as left:
            return ElicitResult(action=left.action)
        except anyio.get_cancelled_exc_class():
            # Answered elsewhere, or Ctrl-C: what comes next begins on a line of its own.
            screen.told("")
            raise


class _Form:
    def __init__(self, screen: Screen, keyboard: Keyboard) -> None:
        self._screen = screen
        self._keyboard = keyboard

    async def filled(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The content of a form."""
        self._screen.told(
            f"  ({DECLINE} says no to the question; {CANCEL} or Ctrl-D closes it without an answer)", "dim"
        )
        asked = fields(schema)
        if not asked:
            await self._agreed("  Agree? (yes or no): ")
        while True:
            content: dict[str, Any] = {}
            for each in asked:
                value = await self._field(each)
                if value is not NOTHING:
                    content[each.name] = value
            faults = misfits(content, schema)
            if not faults or not asked:
                return content
            self._complain("; ".join(faults))

    async def visited(self, url: str) -> None:
        """The person's agreement to visit a page. It is theirs to open: nothing is opened here."""
        self._screen.told(f"  A page of {host(url)}:")
        self._screen.told(f"?   {text.line(url)}")
        self._screen.told(
            f"  (open it yourself if you trust it; {DECLINE} says no, {CANCEL} closes the question)", "dim"
        )
        await self._agreed("  Will you go there? (yes or no): ")

    async def _agreed(self, prompt: str) -> None:
        while True:
            said = (await self._typed(prompt)).strip().lower()
            if said in {"y", "yes"}:
                return
            if said in {"n", "no"}:
                raise _Left("decline")
            self._complain("say yes or no")

    async def _field(self, field: Field) -> Any:
        for line in described(field):
            self._screen.told(line)
        while True:
            try:
                return field.read(await self._typed(_prompt(field)))
            except Unfit as error:
                self._complain(str(error))

    async def _typed(self, prompt: str) -> str:
        self._screen.prompt(prompt)
        said = await self._keyboard.line()
        if said is None:
            self._screen.told("")
            raise _Left("cancel")
        word = said.strip()
        if word in _WORDS:
            raise _Left(_WORDS[word])
        return said[said.index("/") + 1 :] if word.removeprefix("/") in _WORDS else said

    def _complain(self, reason: str) -> None:
        self._screen.told(f"  {text.line(reason)}", "bad")


def described(field: Field) -> Iterator[str]:
    """What there is to know of a field before it is asked for."""
    if field.description:
        yield f"  {text.line(field.description)}"
    width = len(str(len(field.choices)))
    for number, choice in enumerate(field.choices, 1):
        alias = "" if str(choice.value) == choice.title else f"  ({text.line(str(choice.value))})"
        yield f"  {number:{width + 2}}. {text.line(choice.title)}{alias}"


def _prompt(field: Field) -> str:
    hint, default = text.line(field.hint()), text.line(field.shown_default())
    return f"  {text.line(field.title)}{hint and f' ({hint})'}{default and f' [{default}]'}: "


def host(url: str) -> str:
    """Whose page it is, in letters that look like no others."""
    try:
        named = urlsplit(url).hostname or ""
        return text.line(named.encode("idna").decode("ascii")) or "no known host"
    except ValueError:
        return "no known host"
