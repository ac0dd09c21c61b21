"""Requests that the schemas allow, made from the schemas: each is answered, and each answer is what they allow."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import oracle, schemas, values
from fuzz.ground import ANSWERED
from fuzz.http import post
from fuzz.mixing import mixed
from fuzz.people import ADA
from fuzz.scene import Scene
from tests.wire.envelopes import CLIENT_CAPABILITIES, EVERYTHING, NOTHING, PROTOCOL_VERSION, TASKS, VERSION, headers

from .base import Needs, Target

__all__ = ["TARGET", "send"]

JSON = Any

_ARGUMENTS: Final = st.dictionaries(schemas.plain_texts(), schemas.plain_values(), max_size=2)
_DECLARED: Final = st.sampled_from((EVERYTHING, EVERYTHING, EVERYTHING, TASKS, NOTHING))
_KNOWN: Final[schemas.Known] = {
    "taskId": values.ids().filter(lambda text: text.isprintable()),
    "name": mixed((5, st.sampled_from(("greet", "must", "plain", "ask", "fail"))), (1, schemas.plain_texts())),
    "arguments": mixed((3, st.just({"label": ADA.canary})), (1, _ARGUMENTS)),
    "requestState": schemas.plain_texts(),
    PROTOCOL_VERSION: st.just(VERSION),
    "*": mixed((3, st.sampled_from(("plain", ANSWERED, "url", "sampling", "roots"))), (1, schemas.plain_texts())),
}
_IMPLIED: Final[schemas.Known] = {
    **_KNOWN,
    CLIENT_CAPABILITIES: mixed((5, _DECLARED), (1, schemas.allowed(schemas.CORE, "ClientCapabilities", {}))),
    "name": schemas.plain_texts(),
}


def _tasks(name: str) -> SearchStrategy[JSON]:
    """A request of the extension, whose schema leaves out what the core wants of every request."""
    metas = schemas.allowed(schemas.CORE, "RequestMetaObject", _IMPLIED)
    return st.builds(_within, schemas.allowed(schemas.EXTENSION, name, _KNOWN), metas)


def _within(request: JSON, meta: JSON) -> JSON:
    return {**request, "params": {**request["params"], "_meta": meta}}


def _calls() -> SearchStrategy[JSON]:
    metas = schemas.allowed(schemas.CORE, "RequestMetaObject", _IMPLIED)
    return st.builds(_within, schemas.allowed(schemas.CORE, "CallToolRequest", _KNOWN), metas)


def send(scene: Scene, request: JSON, token: str = ADA.token) -> JSON:
    """What is answered to a request in order, once it is judged."""
    fields = headers(request) | {"authorization": f"Bearer {token}"}
    replies = scene.send(post("/mcp", values.written(request).encode(), fields))
    if len(replies) != 1:
        raise oracle.Found("every request is answered", f"{len(replies)} answers")
    oracle.judge_contract(request, replies[0])
    return replies[0].body


TARGET: Final = Target(
    "lawful",
    Needs.QUIET,
    st.one_of(_tasks("GetTaskRequest"), _tasks("UpdateTaskRequest"), _tasks("CancelTaskRequest"), _calls()),
    send,
    count=300,
)
