"""Sessions of the handshake era, with the tasks of revision 2025-11-25, as a server serves them that was asked to.

Its answers have another contract, of which nothing is judged here beyond what holds for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import values
from fuzz.http import post
from fuzz.mixing import mixed
from fuzz.people import ADA, PEOPLE, task_id
from fuzz.scene import Scene

from .base import Needs, Target

__all__ = ["TARGET"]

JSON = Any
_REVISION: Final = "2025-11-25"
_OVER: Final = ("done", "large", "failed", "cancelled")
"""Kinds of tasks whose result can be had; that of any other is waited for."""
_HELLO: Final[dict[str, JSON]] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": _REVISION,
        "capabilities": {"elicitation": {}, "tasks": {"cancel": {}, "list": {}}},
        "clientInfo": {"name": "raw", "version": "0"},
    },
}
_READY: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def _requests() -> SearchStrategy[JSON]:
    over = st.sampled_from([task_id(person, kind) for person in PEOPLE for kind in _OVER])
    wanted = st.fixed_dictionaries({}, optional={"ttl": values.json_values()})
    asked: dict[str, SearchStrategy[JSON]] = {
        "tasks/get": st.fixed_dictionaries({"taskId": values.ids()}),
        "tasks/cancel": st.fixed_dictionaries({"taskId": values.ids()}),
        "tasks/result": st.fixed_dictionaries({"taskId": over}),
        "tasks/list": st.fixed_dictionaries({}, optional={"cursor": mixed((1, values.texts()), (1, values.ids()))}),
        "tools/call": st.fixed_dictionaries(
            {"name": st.sampled_from(("greet", "must", "ask", "plain")), "arguments": st.just({"label": ADA.canary})},
            optional={"task": mixed((3, wanted), (1, values.odd_values()))},
        ),
        "tools/list": st.just({}),
        "tasks/update": st.fixed_dictionaries({"taskId": values.ids(), "inputResponses": st.just({})}),
    }
    return mixed(*((1, st.builds(_request, st.just(method), params)) for method, params in asked.items()))


def _request(method: str, params: JSON) -> JSON:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def _edited(request: JSON, todo: Sequence[values.Edit]) -> JSON:
    """One whose result is waited for stays as it is: it might come to ask for what is not over."""
    if request["method"] == "tasks/result":
        return request
    return {**request, "params": values.edited(request["params"], todo)}


def _cases() -> SearchStrategy[list[JSON]]:
    within = st.builds(_edited, _requests(), values.edits())
    return st.lists(mixed((2, _requests()), (2, within)), min_size=1, max_size=4)


def check(scene: Scene, requests: Sequence[JSON]) -> None:
    """Begin a session, say all of that in it, and end it."""
    (hello,) = scene.send(_posted(_HELLO))
    session = hello.headers["mcp-session-id"]
    for request in (_READY, *requests):
        scene.send(_posted(request, session))
    scene.send(_posted({}, session).replace(b"POST", b"DELETE", 1))


def _posted(body: JSON, session: str | None = None) -> bytes:
    fields = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("authorization", f"Bearer {ADA.token}"),
    ]
    if session is not None:
        fields += [("mcp-session-id", session), ("mcp-protocol-version", _REVISION)]
    return post("/mcp", values.written(body).encode(), fields)


TARGET: Final = Target("handshake", Needs.QUIET, _cases(), check, count=60)
