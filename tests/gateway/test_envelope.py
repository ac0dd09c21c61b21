"""What is wrong with a request is said as a server says it: the same status and the same bytes."""

import json
from typing import Any, Final

import pytest

from tests.gateway.conftest import Pair
from tests.wire.envelopes import envelope, headers, meta

UNKNOWN: Final = "tsk_" + "a" * 32
LIST: Final[Any] = envelope("tools/list")
GET: Final[Any] = envelope("tasks/get", {"taskId": UNKNOWN})
NO_META: Final[Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
OLD: Final[Any] = envelope("tools/list", {"_meta": meta(version="2020-01-01")})

BODIES: Final[dict[str, bytes]] = {
    "no JSON": b"{",
    "no UTF-8": b"\xff\xfe",
    "a batch": json.dumps([LIST]).encode(),
    "a text": b'"tools/list"',
    "a response": b'{"jsonrpc":"2.0","id":1,"result":{}}',
    "no version of JSON-RPC": json.dumps({**LIST, "jsonrpc": "1.0"}).encode(),
    "an id that is true": json.dumps({**LIST, "id": True}).encode(),
    "an id that is null": json.dumps({**LIST, "id": None}).encode(),
    "an id that is a number with a point": json.dumps({**LIST, "id": 1.5}).encode(),
    "parameters that are a list": json.dumps({**LIST, "params": []}).encode(),
    "no parameters": json.dumps({key: value for key, value in LIST.items() if key != "params"}).encode(),
    "no _meta": json.dumps(NO_META).encode(),
    "a cursor that is a number": json.dumps(envelope("tools/list", {"cursor": 5})).encode(),
    "a tool's name that is a number": json.dumps(envelope("tools/call", {"name": 5})).encode(),
    "an unknown method": json.dumps(envelope("no/such")).encode(),
    "a method of the revision before": json.dumps(envelope("tasks/list")).encode(),
    "the handshake": json.dumps(envelope("initialize")).encode(),
    "NaN": json.dumps(envelope("tasks/get", {"taskId": UNKNOWN, "more": float("nan")})).encode(),
    "a huge number": json.dumps(GET).encode().replace(b'"tsk_', b'1e999,"x":"tsk_'),
    "a notification": b'{"jsonrpc":"2.0","method":"notifications/whatever"}',
    "listening to no list": json.dumps(envelope("subscriptions/listen", {"notifications": {"taskIds": [5]}})).encode(),
    "listening to nothing": json.dumps(envelope("subscriptions/listen", {})).encode(),
    "listening in the wrong place": json.dumps(
        envelope("subscriptions/listen", {"taskIds": [UNKNOWN], "notifications": {}})
    ).encode(),
    "an update without answers": json.dumps(envelope("tasks/update", {"taskId": UNKNOWN})).encode(),
}
FIELDS: Final[dict[str, tuple[Any, dict[str, str]]]] = {
    "another method": (LIST, {"mcp-method": "tools/call"}),
    "no method": (LIST, {"mcp-method": ""}),
    "another version": (LIST, {"mcp-protocol-version": "2026-01-01"}),
    "a version that nobody has": (OLD, {"mcp-protocol-version": "2020-01-01"}),
    "another name": (GET, {"mcp-name": "other"}),
    "a name that is broken base64": (GET, {"mcp-name": "=?base64?%%%?="}),
    "another tool": (envelope("tools/call", {"name": "hello"}), {"mcp-name": "other"}),
    "no stream": (LIST, {"accept": "application/json"}),
    "a content type that is none": (LIST, {"content-type": "text/plain"}),
}


@pytest.mark.parametrize("wrong", BODIES)
async def test_a_body_is_judged_as_a_server_judges_it(pair: Pair, wrong: str) -> None:
    content = BODIES[wrong]
    try:
        fields = headers(json.loads(content))
    except ValueError:
        fields = headers(LIST)
    here = await pair.client.post(content, [*fields.items()])
    there = await pair.one.client.post(content, [*fields.items()])
    assert (here.status, here.body) == (there.status, there.body)


@pytest.mark.parametrize("wrong", FIELDS)
async def test_headers_are_judged_as_a_server_judges_them(pair: Pair, wrong: str) -> None:
    body, changed = FIELDS[wrong]
    here, there = await pair.client.exchange(body, changed), await pair.one.client.exchange(body, changed)
    assert (here.status, here.raw) == (there.status, there.raw)
    assert here.status >= 400


async def test_a_header_that_comes_twice_is_refused(pair: Pair) -> None:
    content = json.dumps(LIST).encode()
    for name in ("mcp-method", "mcp-protocol-version", "mcp-param-region"):
        reply = await pair.client.post(content, [*headers(LIST).items(), (name, "a"), (name, "b")])
        assert (reply.status, reply.code) == (400, -32020)


async def test_only_post_is_served(pair: Pair) -> None:
    for request in ("GET /mcp", "DELETE /mcp"):
        here = await pair.client.speak(b"", [*headers(LIST).items()], request=request)
        there = await pair.one.client.speak(b"", [*headers(LIST).items()], request=request)
        assert here.status == there.status == 405


async def test_what_is_nested_deeper_than_can_be_passed_on_is_refused_as_no_json(pair: Pair) -> None:
    seen: set[int] = set()
    for depth in range(800, 1_000, 7):
        body = json.dumps(envelope("tools/call", {"name": "one_hello", "arguments": {"name": "@"}}))
        content = body.replace('"@"', "[" * depth + "]" * depth).encode()
        reply = await pair.client.post(content, [*headers(json.loads(body)).items()])
        seen.add(reply.code)
    # -32602 is the backend's: it has read it.
    assert seen == {-32602, -32700}
