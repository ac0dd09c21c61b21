"""JSON-RPC over HTTP: bodies that are wrong in a place or two, with headers that are, or do not fit them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fuzz import oracle, values
from fuzz.http import post
from fuzz.mixing import mixed
from fuzz.oracle import Found
from fuzz.people import ADA
from fuzz.scene import Scene
from tests.wire.envelopes import NAMED, headers, member

from .base import Needs, Target

__all__ = ["TARGET", "Envelope"]

JSON = Any
Fields = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body, and what is done to the headers that belong to it."""

    body: JSON
    changes: tuple[tuple[str, str, str], ...] = ()

    @property
    def content(self) -> bytes:
        """The request as it is sent."""
        body = values.written(self.body)
        fields = [*headers(self.body).items(), ("authorization", f"Bearer {ADA.token}")]
        for name, how, value in self.changes:
            fields = _changed(fields, name, how, value)
        return post("/mcp", body.encode("utf-8"), fields)


def _changed(fields: Fields, name: str, how: str, value: str) -> Fields:
    own = next((text for known, text in fields if known == name), "")
    others = [(known, text) for known, text in fields if known != name]
    match how:
        case "remove":
            return others
        case "twice":
            return [*fields, (name, own)]
        case "and":
            return [*fields, (name, value)]
        case "case":
            return [*others, (name.swapcase(), own)]
        case _:
            return [*others, (name, _put(how, own, value))]


def _put(how: str, own: str, value: str) -> str:
    match how:
        case "space":
            return f" \t {own}\t "
        case "within":
            return own[: len(own) // 2] + value + own[len(own) // 2 :]
        case "sentinel":
            return _sentinel(own.encode())
        case "sentinels":
            return _sentinel(_sentinel(own.encode()).encode())
        case "broken":
            return _sentinel(own.encode())[: -len(value) % 9 - 1]
        case "no text":
            return _sentinel(own.encode() + b"\xff\xc0")
        case _:
            return value


def _sentinel(content: bytes) -> str:
    return f"=?base64?{base64.b64encode(content).decode()}?="


_NAMES: Final = (
    "mcp-name",
    "mcp-method",
    "mcp-protocol-version",
    "content-type",
    "accept",
    "authorization",
    "host",
    "origin",
)
_OTHERS: Final = ("content-encoding", "mcp-session-id", "last-event-id", "connection", "expect", "x" * 300, "cookie")
_HOW: Final = (
    "replace", "remove", "twice", "and", "case", "space", "within", "sentinel", "sentinels", "broken", "no text",
)  # fmt: skip
_SAID: Final = (
    "", " ", "tasks/get", "tasks/cancel", "tools/call", "initialize", "2026-07-28", "2025-11-25", "2024-11-05", "*/*",
    "application/json", "application/json; charset=utf-16", "text/event-stream", "text/plain", "application/json-seq",
    "gzip", "100-continue", "=?base64??=", "=?base64?=?=", "=?utf-8?q?a?=", "=?base64?////?=", "null", "Bearer",
    "Bearer ", "Basic YTpi", "Bearer token-of-bob", "bearer token-of-ada", "x" * 9000, "\xff\xfe", "a\tb", "\x7f",
    "http://evil.example", "localhost:1", "upgrade", "é", "1",
)  # fmt: skip


def _changes() -> SearchStrategy[tuple[tuple[str, str, str], ...]]:
    said = st.one_of(st.sampled_from(_SAID), st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=8))
    change = st.tuples(st.sampled_from(_NAMES * 3 + _OTHERS), st.sampled_from(_HOW), said)
    return mixed((1, st.just(())), (1, st.lists(change, max_size=3).map(tuple)))


def check(scene: Scene, envelope: Envelope) -> None:
    """Send it. Whatever comes back is as the contract has it."""
    content = envelope.content
    replies = scene.send(content)
    head, _, text = content.partition(b"\r\n\r\n")
    if b"mcp-session-id" in head.lower():  # the handshake era's, which has a contract of its own
        return
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        request = None
    for reply in replies:
        oracle.judge_contract(request, reply)
        if oracle.accepted(reply):
            _judge_headers(request, head)


def _judge_headers(request: JSON, head: bytes) -> None:
    """What was granted was asked for by the body and by the headers that repeat it alike."""
    method = member(request, "method")
    name = member(member(request, "params"), NAMED.get(method, ""))
    for line in head.decode("latin-1").split("\r\n"):
        field, _, value = line.partition(":")
        said = value.strip(" \t")
        if field.lower() == "mcp-method" and said != method:
            raise Found("headers say what the body says", f"{line!r}, and the method is {method!r}")
        if field.lower() == "mcp-name" and name is not None and _decoded(said) != name:
            raise Found("headers say what the body says", f"{line!r}, and the name is {name!r}")


def _decoded(said: str) -> str | None:
    """What a header's value means; None if it is encoded, and badly."""
    if not (said.startswith("=?base64?") and said.endswith("?=")):
        return said
    try:
        return base64.b64decode(said[len("=?base64?") : -2], validate=True).decode()
    except ValueError:
        return None


TARGET: Final = Target("envelopes", Needs.QUIET, st.builds(Envelope, values.bodies(), _changes()), check, count=400)
