"""What may be sent twice, and when."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.domain.names import IDEMPOTENCY, IDEMPOTENCY_KEY
from perdure.gateway.faults import BackendBroken, BackendTimeout, BackendUnavailable, Fault, Overloaded
from perdure.gateway.retrying import Safe, honours_keys, pause, safe

BOUNDS = Safe(tries=3, first=0.1, longest=0.3)
HONOURS: dict[str, Any] = {"capabilities": {"extensions": {IDEMPOTENCY: {}}}}


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


@pytest.mark.parametrize(
    "method",
    [
        "tasks/get",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    ],
)
def test_what_reads_is_safe(method: str) -> None:
    assert safe(message(method), None, BOUNDS) is BOUNDS


@pytest.mark.parametrize(
    "method", ["tools/call", "tasks/update", "tasks/cancel", "prompts/get", "subscriptions/listen", "x/y"]
)
def test_what_changes_something_or_is_not_known_is_not(method: str) -> None:
    assert safe(message(method), HONOURS, BOUNDS) is None


@pytest.mark.parametrize("name", ["inputResponses", "requestState"])
def test_a_read_that_brings_answers_along_is_not(name: str) -> None:
    assert safe(message("resources/read", uri="a:b", **{name: {}}), None, BOUNDS) is None


def test_a_call_is_safe_under_a_key_that_the_backend_honours_and_not_otherwise() -> None:
    call = message("tools/call", name="t", _meta={IDEMPOTENCY_KEY: "k"})
    assert safe(call, HONOURS, BOUNDS) is BOUNDS
    assert safe(call, None, BOUNDS) is None
    assert safe(call, {"capabilities": {"extensions": {}}}, BOUNDS) is None


@pytest.mark.parametrize("meta", [{}, {IDEMPOTENCY_KEY: ""}, {IDEMPOTENCY_KEY: 7}, None, "text"])
def test_what_is_no_key_makes_nothing_safe(meta: Any) -> None:
    assert safe(message("tools/call", name="t", _meta=meta), HONOURS, BOUNDS) is None


@pytest.mark.parametrize("params", [None, [], "text"])
def test_parameters_that_are_no_object_do_no_harm(params: Any) -> None:
    assert safe({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, HONOURS, BOUNDS) is None


@pytest.mark.parametrize(
    "discovered",
    [
        {},
        {"capabilities": None},
        {"capabilities": {"extensions": []}},
        {"capabilities": {"extensions": {IDEMPOTENCY: None}}},
    ],
)
def test_a_backend_that_says_nothing_honours_no_keys(discovered: Any) -> None:
    assert not honours_keys(discovered)


def test_pauses_grow_to_a_bound_and_are_shortened_by_chance() -> None:
    bounds = Safe(tries=10, first=0.1, longest=0.3)
    fault = BackendUnavailable("b")
    assert [pause(fault, failures, bounds, 60, 0.0) for failures in (1, 2, 3, 60)] == [
        pytest.approx(0.1),
        pytest.approx(0.2),
        0.3,
        None,
    ]
    assert pause(fault, 1, bounds, 60, 1.0) == pytest.approx(0.05)


def test_a_backend_is_left_alone_for_as_long_as_it_asks() -> None:
    assert pause(BackendUnavailable("b", retry_after_ms=2_000), 1, BOUNDS, 60, 0.5) == 2
    assert pause(BackendUnavailable("b", retry_after_ms=2_000), 1, BOUNDS, 1.9, 0.5) is None


@pytest.mark.parametrize(
    "fault",
    [BackendBroken("b", "x"), Overloaded("b"), BackendUnavailable("b", resting=True), Fault("b", "x")],
    ids=lambda fault: type(fault).__name__,
)
def test_what_would_be_the_same_again_is_not_sent_again(fault: Fault) -> None:
    assert pause(fault, 1, BOUNDS, 60, 0.5) is None


def test_the_last_try_is_the_last() -> None:
    fault = BackendTimeout("b", begun=True, counts=True)
    assert pause(fault, 2, BOUNDS, 60, 0.5) is not None
    assert pause(fault, 3, BOUNDS, 60, 0.5) is None
