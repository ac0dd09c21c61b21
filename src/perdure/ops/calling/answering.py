"""Answers from the words of a command line: `field=value`, or `key.field=value` of several questions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from perdure.ops import text

from . import arguments
from .fields import NOTHING, Field, fields, misfits, sendable
from .hints import Hints, quoted
from .typed import Unfit, parse_json

__all__ = ["Action", "accepted", "action_for", "content_for", "plain", "told"]

Action = Literal["accept", "decline", "cancel"]


def action_for(questions: Mapping[str, Any], key: str | None) -> str:
    """The question that an action without fields is for.

    Raises:
        Unfit: there is none such, or it must be said which.
    """
    if key is not None and key in questions:
        return key
    if key is not None or len(questions) != 1:
        raise Unfit(f"say which question: {', '.join(questions)}")
    return next(iter(questions))


def content_for(questions: Mapping[str, Any], words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The contents of the forms that the words fill, by the keys of their questions.

    Raises:
        Unfit: a word names no field of an open question, or says nothing that fits in there.
    """
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        key, name, raw, said = _place(questions, word)
        field = next((each for each in fields(_schema(questions[key])) if each.name == name), None)
        if field is None:
            names = ", ".join(each.name for each in fields(_schema(questions[key])))
            raise Unfit(f"the question {key} has no field {name!r}; there are: {names or 'none'}")
        found.setdefault(key, {})[name] = _read(field, raw, said)
    for key, content in found.items():
        _complete(key, content, questions[key])
    return found


def accepted(questions: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The content of a form that somebody agrees to as it is: its defaults.

    Raises:
        Unfit: it has a field that must be filled.
    """
    content: dict[str, Any] = {}
    _complete(key, content, questions[key])
    return content


def _place(questions: Mapping[str, Any], word: str) -> tuple[str, str, bool, str]:
    place, raw, said = arguments.split(word)
    # A key may have dots in it, so the longest that fits is meant.
    for key in sorted(questions, key=len, reverse=True):
        if place.startswith(f"{key}."):
            return key, place.removeprefix(f"{key}."), raw, said
    return action_for(questions, None), place, raw, said


def _read(field: Field, raw: bool, said: str) -> Any:
    try:
        if raw:
            return sendable(parse_json(said))
        # In a form an empty line takes the default. Here an empty word is what was said.
        return "" if field.kind == "string" and not said else field.read(said)
    except Unfit as error:
        raise Unfit(f"{field.name}: {error}") from None


def _complete(key: str, content: dict[str, Any], question: object) -> None:
    schema = _schema(question)
    for field in fields(schema):
        if field.name not in content and field.default is not NOTHING:
            content[field.name] = field.default
        elif field.name not in content and field.required:
            raise Unfit(f"the question {key} needs {field.name} as well")
    faults = misfits(content, schema)
    if faults:
        raise Unfit("; ".join(faults))


def told(task_id: str, questions: Mapping[str, Any], hints: Hints, *, several: bool) -> Iterator[str]:
    """The questions of a task, and the commands that answer them. `several`: whether it must be said which is meant.

    Every line that is the server's begins with a question mark, so that none can pass for one of the commands.
    """
    for key, question in questions.items():
        params = _params(question)
        yield from (f"? {each}" for each in text.block(str(params.get("message", key))).split("\n"))
        url: object = params.get("url")
        if isinstance(url, str):
            yield f"?   {text.line(url)}"
        yield from (f"?   {text.line(each.listed())}" for each in fields(_schema(question)))
        yield from (f"  {command}" for command in _commands(task_id, key, question, hints, several=several))


def _commands(task_id: str, key: str, question: object, hints: Hints, *, several: bool) -> Iterator[str]:
    which = [f"--question {quoted(key)}"] if several else []
    filled = [each.name for each in fields(_schema(question)) if each.required] or [
        each.name for each in fields(_schema(question))
    ]
    words = [quoted(f"{key}.{name}" if several else name) + "=…" for name in filled]
    task = quoted(task_id)
    accepted = hints.command("answer", task, options=["--accept", *which])
    yield hints.command("answer", task, *words) if words else accepted
    yield hints.command("answer", task, options=["--decline", *which])


def plain(questions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions as `--json` has them."""
    return [_plain(key, question) for key, question in questions.items()]


def _plain(key: str, question: object) -> dict[str, Any]:
    params = _params(question)
    found = {"key": key, **{name: params[name] for name in ("message", "url") if isinstance(params.get(name), str)}}
    return {**found, "fields": [each.plain() for each in fields(_schema(question))]}


def _schema(question: object) -> object:
    return _params(question).get("requestedSchema")


def _params(question: object) -> dict[str, Any]:
    params: object = cast("dict[str, object]", question).get("params") if isinstance(question, dict) else None
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}
