"""What of a task is read, and what counts as news: pure, and whatever a server may say."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.client.snapshot import TERMINAL, NotATask, Snapshot

T0 = "2026-11-30T08:00:00.000Z"
STATUSES = ["working", "input_required", "pondering", *sorted(TERMINAL)]


def said(status: str = "working", at: Any = T0, **more: Any) -> Snapshot:
    return Snapshot.parse({"taskId": "t", "status": status, "lastUpdatedAt": at, **more})


def test_everything_that_has_a_field_is_read() -> None:
    raw = {
        "resultType": "complete",
        "taskId": "t",
        "status": "input_required",
        "statusMessage": "soon",
        "createdAt": "2026-11-30T09:00:00+01:00",
        "lastUpdatedAt": T0,
        "ttlMs": 900_000,
        "pollIntervalMs": 1500,
        "inputRequests": {"form": {"method": "elicitation/create"}},
        "later": 1,
    }
    assert Snapshot.parse(raw) == Snapshot(
        "t",
        "input_required",
        "soon",
        datetime(2026, 11, 30, 8, tzinfo=UTC),
        datetime(2026, 11, 30, 8, tzinfo=UTC),
        900_000,
        1500,
        {"form": {"method": "elicitation/create"}},
        None,
        None,
        raw,
    )


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"taskId": 5, "status": "working"},
        {"taskId": "t", "status": None},
        {"taskId": "t", "status": "completed", "result": []},
        {"taskId": "t", "status": "failed", "error": "no"},
        {"taskId": "t", "status": "input_required", "inputRequests": 5},
    ],
)
def test_what_lacks_the_head_or_has_a_part_of_another_shape_is_no_task(raw: dict[str, Any]) -> None:
    with pytest.raises(NotATask):
        Snapshot.parse(raw)


@pytest.mark.parametrize("value", [None, "soon", 5, True, "", [], {}, -1, 0, float("nan"), float("inf"), "2026-13-01"])
def test_what_hangs_on_nothing_is_read_leniently(value: Any) -> None:
    raw = {"taskId": "t", "status": "working"} | dict.fromkeys(("createdAt", "ttlMs", "pollIntervalMs"), value)
    snapshot = Snapshot.parse(raw | {"statusMessage": value})
    assert snapshot.created_at is None
    assert snapshot.ttl_ms in (None, 5)
    assert snapshot.raw["ttlMs"] is value


def test_an_instant_without_a_zone_is_of_utc_and_instants_are_compared_as_such() -> None:
    assert said(at="2026-11-30T08:00:00").updated_at == said().updated_at
    assert not said("working", "2026-11-30T09:30:00+02:00", message=1).follows(said())
    assert said("working", "2026-11-30T09:30:00+01:00").follows(said())


def test_the_same_again_is_no_news_whoever_says_it() -> None:
    assert not said(resultType="complete", _meta={"a": 1}).follows(said())
    assert said(statusMessage="a word").follows(said())


def test_of_one_instant_the_status_that_is_further_is_the_later_one() -> None:
    assert said("input_required").follows(said())
    assert not said().follows(said("input_required"))
    assert said("completed", result={}).follows(said("input_required"))


def test_without_instants_the_later_word_counts() -> None:
    assert said(at=None).follows(said("input_required"))
    assert said("input_required").follows(said(at="whenever"))


def drawn(status: str, minute: int | None, word: int) -> Snapshot:
    return said(status, None if minute is None else f"2026-11-30T08:{minute:02}:00Z", x=word)


snapshots = st.builds(drawn, st.sampled_from(STATUSES), st.none() | st.integers(0, 5), st.integers(0, 3))


@given(st.lists(snapshots, max_size=20))
def test_in_whatever_order_they_come_time_never_runs_backwards_and_the_end_is_the_end(told: list[Snapshot]) -> None:
    known = said("working", "2026-11-30T07:00:00Z")
    for snapshot in told:
        if not snapshot.follows(known):
            continue
        assert not known.is_terminal
        if None not in (known.updated_at, snapshot.updated_at) and not snapshot.is_terminal:
            assert known.updated_at is not None
            assert snapshot.updated_at is not None
            assert snapshot.updated_at >= known.updated_at
        known = snapshot
