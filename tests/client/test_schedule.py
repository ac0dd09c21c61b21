"""When tasks are polled, by a clock of the tests' own: what moves a poll sooner, what later, and what never."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from perdure.client import Disconnected, Snapshot, faults, pace
from perdure.client.schedule import Schedule
from perdure.client.watched import Watched


def known(poll_ms: int = 1_000) -> Snapshot:
    return Snapshot("t", "working", poll_ms=poll_ms)


class Plan:
    """One task and its schedule, without chance."""

    def __init__(self, of: Snapshot | Watched | None = None, now: float = 0.0) -> None:
        self.task = of if isinstance(of, Watched) else Watched("t", of)
        self.watched = {"t": self.task}
        self.schedule = Schedule(self.watched, lambda: 0.0)
        self.schedule.begin(self.task, now)

    def polled(self, now: float) -> bool:
        return self.schedule.pop(now) is not None

    def answered(self, now: float, poll_ms: int = 1_000) -> None:
        self.task.answer(known(poll_ms), now)
        self.schedule.answered(self.task, known(poll_ms), now)


def test_of_what_nothing_is_known_is_asked_at_once_and_of_the_rest_after_its_interval() -> None:
    assert Plan().polled(0.0)
    plan = Plan(known())
    assert not plan.polled(0.9)
    assert plan.schedule.wait(0.9) == pytest.approx(0.1)
    assert plan.polled(1.0)
    assert plan.schedule.wait(1.0) is None


def test_a_reason_to_ask_keeps_to_the_interval_and_to_what_a_server_that_is_full_said() -> None:
    plan = Plan(known())
    plan.schedule.at_once(plan.task, 0.1)
    assert not plan.polled(0.99)
    assert plan.polled(1.0)
    plan.schedule.failed(plan.task, 30.0, 1.0)
    plan.schedule.at_once(plan.task, 2.0)
    assert not plan.polled(30.9)
    assert plan.polled(31.0)


def test_a_pause_that_grew_is_ended_by_a_reason_to_ask() -> None:
    plan = Plan(known())
    for failure in range(8):
        plan.schedule.failed(plan.task, 0.0, float(failure))
    assert plan.task.due == 7 + 60
    plan.schedule.at_once(plan.task, 9.0)
    assert plan.polled(9.0)


def test_a_reason_to_ask_never_puts_off_what_is_planned() -> None:
    plan = Plan(known())
    plan.schedule.at_once(plan.task, 0.5, after=10.0)
    assert plan.polled(1.0)


def test_what_is_heard_is_polled_rarely_and_one_poll_is_one_entry() -> None:
    plan = Plan(known())
    plan.task.heard = True
    for told in range(1_000):
        plan.schedule.heard(plan.task, told / 1_000)
    assert len(plan.schedule) == 1
    assert not plan.polled(pace.BACKSTOP + 0.9)
    assert plan.polled(pace.BACKSTOP + 1.0)


def test_however_much_a_server_tells_the_heap_stays_small() -> None:
    plan = Plan(known(50))
    plan.task.heard = True
    now = 0.0
    for _ in range(2_000):
        now += 0.06
        plan.schedule.at_once(plan.task, now)
        if plan.polled(now):
            plan.answered(now, 50)
    assert len(plan.schedule) <= 66


def test_a_reason_to_ask_that_came_during_a_poll_is_not_forgotten() -> None:
    plan = Plan(known())
    plan.task.heard = True
    assert plan.polled(1.0)
    plan.task.polling = True
    plan.schedule.at_once(plan.task, 1.1)
    assert not plan.polled(2.0), "it is being asked"
    plan.task.polling = False
    plan.answered(1.5)
    assert not plan.polled(2.4)
    assert plan.polled(2.5)
    plan.answered(2.6)
    assert not plan.polled(60.0)


@pytest.mark.parametrize("how", ["gone", "another", "over"])
def test_what_nobody_waits_for_any_more_is_not_polled(how: str) -> None:
    plan = Plan(known())
    match how:
        case "gone":
            del plan.watched["t"]
        case "another":
            plan.watched["t"] = Watched("t", None)
        case _:
            plan.task.offer(Snapshot("t", "completed", result={}, raw={"status": "completed"}))
    assert not plan.polled(10.0)
    assert plan.schedule.wait(10.0) is None


def waited_again(plan: Plan, now: float) -> Plan:
    """Whoever waited left at `now`, and waits anew."""
    plan.task.left = now
    again = Plan(plan.task.again(now), now)
    assert again.task is not plan.task
    return again


def test_a_wait_in_slices_polls_as_often_as_one_in_a_piece() -> None:
    plan = Plan(known())
    for now in (0.3, 0.6, 0.9):
        plan = waited_again(plan, now)
        assert not plan.polled(now)
    assert not plan.polled(0.99)
    assert plan.polled(1.0)


def test_of_what_was_told_long_ago_is_asked_at_once() -> None:
    assert waited_again(Plan(known()), 100.0).polled(100.0)


def test_a_poll_that_was_cut_off_is_not_made_again_within_the_interval() -> None:
    plan = Plan(known())
    assert plan.polled(1.0)
    plan = waited_again(plan, 1.2)
    assert not plan.polled(1.99)
    assert plan.polled(2.0)


def test_who_waits_in_slices_keeps_to_what_a_server_that_is_full_said() -> None:
    plan = Plan(known())
    assert plan.polled(1.0)
    plan.schedule.failed(plan.task, 30.0, 1.0)
    for now in (5.0, 10.0, 20.0):
        plan = waited_again(plan, now)
    assert not plan.polled(30.9)
    assert plan.polled(31.0)


@pytest.mark.parametrize("snapshot", [known(), None])
def test_pauses_grow_over_slices_too(snapshot: Snapshot | None) -> None:
    plan = Plan(snapshot)
    for failure in range(4):
        plan.schedule.failed(plan.task, 0.0, float(failure))
    plan = waited_again(plan, 3.5)
    assert not plan.polled(6.9)
    assert plan.polled(7.0)


def test_a_bad_moment_is_one_over_slices_that_follow_each_other_and_none_of_long_ago() -> None:
    fault = faults.judge(MCPError(-32603, "Internal error"), "t")
    task = Watched("t", known())
    assert task.grace.ended(fault, 0.0) is None
    for now in (20.0, 40.0):
        task.left = now
        task = task.again(now)
        assert task.grace.ended(fault, now) is None
    assert task.grace.ended(fault, 60.0) is not None
    task.left = 60.0
    assert task.again(120.0).grace.ended(fault, 120.0) is None


def test_who_waits_again_after_a_wait_that_failed_begins_afresh_and_keeps_to_the_interval() -> None:
    plan = Plan(known())
    for failure in range(8):
        plan.schedule.failed(plan.task, 0.0, float(failure))
    assert plan.polled(100.0)
    plan.task.trouble = TimeoutError()
    plan.task.fail(Disconnected("t"))
    again = waited_again(plan, 100.1)
    assert again.task.is_open
    assert again.task.trouble is None
    assert not again.polled(100.9)
    assert again.polled(101.0)


reasons = st.lists(st.tuples(st.sampled_from(["at_once", "heard", "pop", "failed"]), st.floats(0, 5)), max_size=40)


@given(reasons)
def test_whatever_happens_a_task_is_planned_and_never_asked_too_soon(said: list[tuple[str, float]]) -> None:
    plan, now, last = Plan(known()), 0.0, 0.0
    for what, later in said:
        now += later
        if what == "pop" and plan.polled(now):
            assert now >= last + 1.0
            assert now >= plan.task.not_before
            plan.answered(now)
            last = now
        elif what == "failed" and plan.polled(now):
            plan.schedule.failed(plan.task, later, now)
            last = now
        elif what == "at_once":
            plan.schedule.at_once(plan.task, now)
        elif what == "heard":
            plan.schedule.heard(plan.task, now)
    wait = plan.schedule.wait(now)
    assert wait is not None
    assert plan.task.due < float("inf")
