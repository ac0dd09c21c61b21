"""Ids in what passes: which are others on the other side, and which are left alone."""

from typing import Any

from perdure.gateway.rewriting import error, snapshot


def test_only_the_ids_of_the_protocol_are_others_in_a_snapshot() -> None:
    related = "io.modelcontextprotocol/related-task"
    nested: Any = {"content": [{"type": "text", "text": "theirs-1"}], "taskId": "theirs-1"}
    value: Any = {"taskId": "theirs-1", "result": nested, "_meta": {related: {"taskId": "theirs-1"}, "own": 1}}
    assert snapshot(value, "theirs-1", "ours") == {
        "taskId": "ours",
        "result": nested,
        "_meta": {related: {"taskId": "ours"}, "own": 1},
    }
    other: Any = {"_meta": {related: {"taskId": "another"}}}
    assert snapshot(other, "theirs-1", "ours") == {"_meta": {}}


def test_a_short_id_is_replaced_in_an_error_only_where_it_stands_alone() -> None:
    said: Any = {"code": -32602, "message": "1 of 11 is gone", "data": {"id": "1", "more": ["1", 1, None]}}
    assert error(said, "1", "ours")["data"] == {"id": "ours", "more": ["ours", 1, None]}
    assert error(said, "1", "ours")["message"] == "1 of 11 is gone"


def test_what_lies_too_deep_in_an_error_is_left_out() -> None:
    deep: Any = "theirs-0001"
    for _ in range(200):
        deep = [deep]
    said: Any = {"code": -32603, "message": "no", "data": deep}
    assert "theirs" not in str(error(said, "theirs-0001", "ours"))
