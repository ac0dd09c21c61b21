"""What comes over a connection is read as answers, and what goes out is written as it is wrong."""

import json

import pytest

from fuzz.http import Reply, post, replies
from fuzz.oracle import accepted
from fuzz.server import loud
from fuzz.values import Pairs, Raw, edited, written

OK = b"HTTP/1.1 200 OK\r\n"


def test_answers_are_told_apart_by_their_length_by_chunks_and_by_having_no_body() -> None:
    came = b"".join(
        [
            b"HTTP/1.1 100 Continue\r\n\r\n",
            OK + b"Content-Length: 2\r\n\r\nhi",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            OK + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
            OK + b"\r\nthe rest",
        ]
    )
    assert [reply.content for reply in replies(came)] == [b"hi", b"", b"abcd", b"the rest"]


@pytest.mark.parametrize("came", [b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n"])
def test_what_is_no_answer_is_none(came: bytes) -> None:
    assert not list(replies(came))


def test_of_a_stream_the_last_message_counts() -> None:
    content = b'event: message\r\ndata: {"method": "a"}\r\n\r\ndata: {"result": 1}\r\n\r\n'
    reply = Reply(200, {"content-type": "text/event-stream"}, content)
    assert reply.messages == [{"method": "a"}, {"result": 1}]
    assert reply.body == {"result": 1}


@pytest.mark.parametrize(
    ("status", "content", "granted"),
    [
        (200, {"result": {}}, True),
        (200, {"error": {"code": 1}}, False),
        (202, None, False),
        (400, {"result": {}}, False),
    ],
)
def test_granted_is_what_is_no_error_and_no_mere_receipt(status: int, content: object, granted: bool) -> None:
    assert accepted(Reply(status, {"content-type": "application/json"}, json.dumps(content).encode())) is granted


def test_a_length_that_is_given_is_not_added_to() -> None:
    assert post("/x", b"ab", {"a": "b"}).endswith(b"content-length: 2\r\n\r\nab")
    assert post("/x", b"ab", {"Content-Length": "9"}).count(b"ength") == 1


def test_values_are_written_with_all_that_is_wrong_with_them() -> None:
    wrong = {"a": [Raw("01"), Pairs((("b", 1), ("b", float("nan"))))], "c": "\ud800"}
    assert written(wrong) == '{"a":[01,{"b":1,"b":NaN}],"c":"\\ud800"}'


def test_an_edit_changes_one_place_and_leaves_the_original() -> None:
    good = {"a": {"b": 1}}
    assert edited(good, [(2, "replace", 2)]) == {"a": {"b": 2}}
    assert edited(good, [(2, "remove", None)]) == {"a": {}}
    assert edited(good, [(1, "wrap", None)]) == {"a": [{"b": 1}]}
    assert edited(good, [(1, "double", 3)]) == Pairs((("a", {"b": 1}), ("a", 3)))
    assert good == {"a": {"b": 1}}


def test_the_log_may_hold_warnings_and_no_error() -> None:
    fine = "2026-01-01 00:00:00.000Z WARNING perdure: whatever\n"
    error = "2026-01-01 00:00:00.000Z ERROR uvicorn.error: Exception in ASGI application\nTraceback …\nValueError\n"
    assert not loud((fine + fine).encode())
    assert loud(f"{fine}{error}{fine}".encode()).endswith("ValueError\n")
