"""`subscriptions/listen` with filters of every kind: what is accepted is shown, and nothing else ever is."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import oracle, values
from fuzz.http import post
from fuzz.oracle import Found
from fuzz.people import ADA, KINDS, task_id
from fuzz.scene import Scene
from tests.wire.checker import Violation
from tests.wire.envelopes import envelope, headers
from tests.wire.listening import Judge

from .base import Needs, Target

__all__ = ["TARGET"]

JSON = Any
_OWN: Final = {task_id(ADA, kind) for kind in KINDS}


def _filters() -> SearchStrategy[JSON]:
    kinds = {
        name: st.booleans() | values.json_values()
        for name in ("toolsListChanged", "promptsListChanged", "resourcesListChanged", "else")
    }
    kinds["resourceSubscriptions"] = st.lists(values.texts(), max_size=2) | values.json_values()
    good = st.lists(values.ids(), max_size=6)
    tasks = st.one_of(good, good, good, st.lists(values.json_values(), max_size=3), values.json_values())
    return st.fixed_dictionaries({}, optional=kinds | {"taskIds": tasks})


def _requests() -> SearchStrategy[JSON]:
    ids = st.one_of(st.integers(), st.text(max_size=9), values.json_values())
    return st.builds(_request, ids, _filters())


def _request(id: JSON, asked: JSON) -> JSON:
    return envelope("subscriptions/listen", {"notifications": asked}, id=id)


def check(scene: Scene, request: JSON) -> None:
    """Ask for it, and listen to what comes until it is quiet."""
    fields = headers(request) | {"authorization": f"Bearer {ADA.token}"}
    for reply in scene.send(post("/mcp", values.written(request).encode(), fields)):
        if not reply.headers.get("content-type", "").startswith("text/event-stream"):
            oracle.judge_contract(request, reply)
            continue
        frames = reply.messages
        if "taskIds" in request["params"]["notifications"]:
            _judge(request, frames)


def _judge(request: JSON, frames: list[JSON]) -> None:
    judge = Judge(request)
    try:
        for frame in frames:
            judge.see(frame)
    except (Violation, LookupError, TypeError) as violation:
        raise Found("the contract holds", f"{violation!r} in {json.dumps(frames)}") from None
    if judge.honored is None:
        return
    honored, asked = judge.honored["taskIds"], request["params"]["notifications"]["taskIds"]
    if set(honored) != {each for each in asked if each in _OWN}:
        raise Found("one's own tasks are accepted, and no others", f"{honored} of {asked}")


TARGET: Final = Target("listening", Needs.QUIET, _requests(), check, count=60)
