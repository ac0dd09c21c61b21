"""Answers to the questions of a task that really waits for them: what fits goes in, all else changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from fuzz import values
from fuzz.http import ANSWERED_WITHIN
from fuzz.mixing import mixed
from fuzz.oracle import Found
from fuzz.people import ADA
from fuzz.scene import Scene
from tests.wire.envelopes import envelope, member

from .base import Needs, Target
from .lawful import send

__all__ = ["TARGET", "Answers"]

JSON = Any
_AGAIN: Final = 0.005
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "ask": ("plain",),
    "ask_many": ("odd", "url", "sampling", "roots"),
    "ask_dated": ("dated",),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """What is said to the questions of a task of `tool`."""

    tool: str
    responses: JSON


_INSTANTS: Final = (
    "2026-01-01", "2026-01-01 00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01t00:00:00z",
    "2026-01-01T00:00:00+99:00", "2026-01-01T00:00:00", "9999-12-31T23:59:59.999999999Z",
)  # fmt: skip
_URIS: Final = (
    "http://", "http://a b", "mailto:a", "//x", "http://[::1", "http://example.com:99999", "urn:x", "HTTP://EXAMPLE.COM",
    "http://user:word@example.com", "http://é.example", "http://example.com/\\n",
)  # fmt: skip
_DAYS: Final = ("2026-02-30", "0000-01-01", "20260101", "2026-01-01T00:00:00Z", "2026-1-1")


def _near(good: SearchStrategy[JSON], *odd: JSON) -> SearchStrategy[JSON]:
    """What fits, most of the time, or nearly does."""
    return mixed((6, good), (2, st.sampled_from(odd)), (1, values.odd_values()))


def _plain() -> SearchStrategy[JSON]:
    return st.fixed_dictionaries({"ok": _near(st.booleans(), 1, "true", None)}, optional={"else": st.integers()})


def _odd() -> SearchStrategy[JSON]:
    more = {
        "weight": _near(st.floats(0.1, 9) | st.integers(1, 9), 0, -1, float("nan"), 1e308),
        "size": _near(st.sampled_from(("small", "large")), "odd", ""),
        "note": _near(st.text(max_size=3), None, "\0"),
    }
    name, age = (
        _near(st.text(min_size=1, max_size=5), "", "123456", "💥💥💥💥💥"),
        _near(st.integers(0, 150), -1, 151, 7.0),
    )
    return st.fixed_dictionaries({"name": name, "age": age}, optional=more)


def _dated() -> SearchStrategy[JSON]:
    return st.fixed_dictionaries(
        {
            "day": _near(st.dates().map(str), *_DAYS),
            "at": _near(st.datetimes().map(lambda at: f"{at.isoformat()}Z"), *_INSTANTS),
            "where": _near(st.just("https://example.com"), *_URIS),
            "code": _near(st.sampled_from(("ab", "abcd")), "ab\n", "abcde", "AB", ""),
        }
    )


def _form(content: SearchStrategy[JSON]) -> SearchStrategy[JSON]:
    said = st.fixed_dictionaries({"action": st.just("accept"), "content": content})
    refused = st.fixed_dictionaries(
        {"action": st.sampled_from(("decline", "cancel", "else"))}, optional={"content": content}
    )
    return mixed((4, said), (1, refused))


def _sampled() -> SearchStrategy[JSON]:
    text = {"type": "text", "text": "yes"}
    content = _near(st.just(text), [text], [], {"type": "image", "data": "AA==", "mimeType": "image/png"})
    role = _near(st.just("assistant"), "user", "system")
    return st.fixed_dictionaries({"role": role, "content": content, "model": _near(st.text(max_size=3), None)})


def _roots() -> SearchStrategy[JSON]:
    root = st.fixed_dictionaries({"uri": _near(st.just("file:///a"), "http://a", "x", "file://")})
    return st.fixed_dictionaries({"roots": st.lists(root, max_size=2)})


_RESPONSES: Final = {
    "plain": _form(_plain()),
    "odd": _form(_odd()),
    "dated": _form(_dated()),
    "url": _form(values.json_values()),
    "sampling": _sampled(),
    "roots": _roots(),
}


def _cases() -> SearchStrategy[Answers]:
    return mixed(*((1, _of(tool)) for tool in _KEYS))


def _of(tool: str) -> SearchStrategy[Answers]:
    """Responses to all questions of `tool`, or to some of them."""
    responses = {
        key: mixed((6, _RESPONSES[key]), (1, st.builds(values.edited, _RESPONSES[key], values.edits())))
        for key in _KEYS[tool]
    }
    some = st.fixed_dictionaries({}, optional=responses | {"nothing": values.odd_values()})
    return st.builds(Answers, st.just(tool), mixed((2, st.fixed_dictionaries(responses)), (1, some)))


def check(scene: Scene, case: Answers) -> None:
    """Let a task ask, answer it so, and see what comes of it."""
    task = _request(scene, "tools/call", {"name": case.tool, "arguments": {"label": ADA.canary}})["result"]
    asked = _until(scene, task["taskId"], "input_required")
    before = asked["inputRequests"]
    said = _update(scene, task["taskId"], case.responses)
    after = _get(scene, task["taskId"])
    if "error" in said:
        _judge_refusal(asked, after)
    else:
        _judge_acceptance(case, before, after)
        if not after.get("inputRequests"):
            _judge_end(case, _until(scene, task["taskId"], "completed"))
            return
    _request(scene, "tasks/cancel", {"taskId": task["taskId"]})


def _judge_refusal(asked: JSON, after: JSON) -> None:
    pace = {"pollIntervalMs": None}  # which goes by what the server has to do, and by how often it was asked
    if after | pace != asked | pace:
        raise Found("a refused answer changes nothing", f"{asked} became {after}")


def _judge_acceptance(case: Answers, before: JSON, after: JSON) -> None:
    for key, request in before.items():
        if key in case.responses and after["status"] == "input_required" and key in after["inputRequests"]:
            raise Found("what was answered is asked no more", after)
        if key not in case.responses and (after["status"] != "input_required" or key not in after["inputRequests"]):
            raise Found("what was not answered is still asked", after)
        _judge_content(member(member(request, "params"), "requestedSchema"), case.responses.get(key))


def _judge_content(schema: JSON, response: JSON) -> None:
    """A form that was accepted is what the schema of its question allows."""
    read = json.loads(values.written(response))  # as the server has read it
    if schema is None or member(read, "action") != "accept":
        return
    if not Draft202012Validator(schema).is_valid(member(read, "content")):  # pyright: ignore[reportUnknownMemberType]
        raise Found("an answer fits its question", f"{read} went in for {schema}")


def _judge_end(case: Answers, task: JSON) -> None:
    """It could be read: but where the model knows more than its schema says, as of an `AnyHttpUrl`, and says so."""
    if not task["result"].get("isError"):
        return
    if case.tool != "ask_dated" or "The answer to 'dated' can't be used: " not in task["result"]["content"][0]["text"]:
        raise Found("what went in as an answer can be read as one", task)


def _update(scene: Scene, task_id: str, responses: JSON) -> JSON:
    return _request(scene, "tasks/update", {"taskId": task_id, "inputResponses": responses})


def _get(scene: Scene, task_id: str) -> JSON:
    return _request(scene, "tasks/get", {"taskId": task_id})["result"]


def _until(scene: Scene, task_id: str, status: str) -> JSON:
    deadline = monotonic() + ANSWERED_WITHIN
    while True:
        task = _get(scene, task_id)
        if task["status"] == status:
            return task
        if monotonic() > deadline or task["status"] != "working":
            raise Found(f"the task comes to be {status}", task)
        sleep(_AGAIN)


def _request(scene: Scene, method: str, params: dict[str, JSON]) -> JSON:
    return send(scene, envelope(method, params))


TARGET: Final = Target("answers", Needs.WORKING, _cases(), check, count=100)
