"""Idempotency keys: a call made again gets the task that there is; another call under its key gets none.

What a key stands for is known here from all the calls before, so a round is one long history, which begins on a fresh
server: other targets use keys too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import values
from fuzz.ground import KEY
from fuzz.oracle import Found
from fuzz.people import ADA, task_id
from fuzz.scene import Scene
from perdure.domain.names import IDEMPOTENCY_KEY
from tests.wire.envelopes import envelope, meta

from .base import Needs, Target
from .lawful import send

__all__ = ["TARGET", "Call"]

JSON = Any
_LONGEST: Final = 200
_DONE: Final = json.dumps(["greet", {"label": f"{ADA.canary}: done"}])


@dataclass(frozen=True, slots=True)
class Call:
    """A call of `tool` with `label`, under `key`."""

    key: JSON
    tool: str
    label: str


def _calls() -> SearchStrategy[Call]:
    few = st.sampled_from(("a", "b", KEY, "A", "a ", "é", "e\u0301", "x" * _LONGEST))
    keys = st.one_of(few, few, values.texts(), values.json_values(), st.just("x" * (_LONGEST + 1)))
    labels = st.sampled_from((ADA.canary, "other", f"{ADA.canary}: done"))
    return st.builds(Call, keys, st.sampled_from(("greet", "must")), labels)


def check(scene: Scene, call: Call) -> None:
    """Make it, and compare with what was made before."""
    known: dict[str, tuple[str, str]] = scene.memory.setdefault("keys", {KEY: (_DONE, task_id(ADA, "done"))})
    params = {"name": call.tool, "arguments": {"label": call.label}, "_meta": meta() | {IDEMPOTENCY_KEY: call.key}}
    body = send(scene, envelope("tools/call", params))
    task = body.get("result", {}).get("taskId")
    if not _is_key(call.key):
        if task is not None:
            raise Found("what is no key is refused", body)
        return
    asked = json.dumps([call.tool, {"label": call.label}])
    if task is None:
        if call.key not in known or known[call.key][0] == asked:
            raise Found("a call under its own key is served", body)
    elif known.setdefault(call.key, (asked, task)) != (asked, task):
        raise Found("a key stands for one call and one task", f"{known[call.key]}, and then {asked}: {task}")


def _is_key(key: JSON) -> bool:
    if not isinstance(key, str) or not 1 <= len(key) <= _LONGEST or "\0" in key:
        return False
    return not any("\ud800" <= char <= "\udfff" for char in key)


TARGET: Final = Target("keys", Needs.QUIET, _calls(), check, fresh=True)
