"""The parts of the catalog that are pure."""

from typing import Any

import pytest

from perdure.gateway.backends import Naming
from perdure.gateway.catalog import fits, together
from perdure.gateway.rewriting import error, snapshot


@pytest.mark.parametrize(
    ("uri", "template", "does"),
    [
        ("book://Emma/text", "book://{title}/text", True),
        ("book://Emma", "book://{title}/text", False),
        ("book://index", "book://index", True),
        ("book://index2", "book://index", False),
        ("book://a/b/c", "book://{x}/{y}/c", True),
        ("book://a/c", "book://{x}/{y}/c", False),
        ("ab", "{x}ab{y}ab{z}", False),
        ("abab", "{x}ab{y}ab{z}", True),
        ("aa", "a{x}a", True),
        ("a", "a{x}a", False),
        ("a" * 100_000, "{x}" * 1_000 + "b", False),
        ("anything", "{+path}", True),
    ],
)
def test_an_address_fits_a_template_if_the_text_around_the_braces_is_there_in_its_order(
    uri: str, template: str, does: bool
) -> None:
    assert fits(uri, template) is does


def test_capabilities_are_those_of_all_of_them() -> None:
    one: Any = {"capabilities": {"tools": {"listChanged": False}, "extensions": {"x": {"a": 1}}}}
    two: Any = {"capabilities": {"tools": {"listChanged": True}, "prompts": {}, "extensions": {"x": {"a": 2}}}}
    assert together([one, two]) == {
        "tools": {"listChanged": True},
        "prompts": {},
        "extensions": {"x": {"a": 1}},
    }


def test_the_tasks_extension_is_offered_exactly_empty_if_one_has_it() -> None:
    name = "io.modelcontextprotocol/tasks"
    one: Any = {"capabilities": {"tools": {}, "extensions": {name: {"stray": True}}}}
    assert together([one, {"capabilities": {}}])["extensions"] == {name: {}}
    assert one["capabilities"]["extensions"][name] == {"stray": True}


def test_keys_of_idempotency_are_offered_only_if_every_backend_with_tools_honours_them() -> None:
    keyed: Any = {"capabilities": {"tools": {}, "extensions": {"dev.perdure/idempotency": {}}}}
    prompts: Any = {"capabilities": {"prompts": {}}}
    tools: Any = {"capabilities": {"tools": {}}}
    assert together([keyed, prompts])["extensions"] == {"dev.perdure/idempotency": {}}
    assert together([keyed, tools])["extensions"] == {}


def test_a_name_goes_there_and_back() -> None:
    for naming in (Naming(), Naming("it_"), Naming(mapped={"ours": "read"})):
        exposed = naming.exposed("read")
        assert exposed is not None
        assert naming.theirs(exposed) == "read"
    assert Naming("it_").theirs("read") is None
    assert Naming(mapped={"ours": "read"}).exposed("write") is None
    assert Naming(mapped={"ours": "read"}).theirs("read") is None


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
