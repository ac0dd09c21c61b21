"""How often a client is told to ask, and when it is refused: by the age of the task, its own pace, and the load."""

from dataclasses import dataclass, field, replace

import pytest

from perdure.domain.errors import PolledTooOften
from perdure.domain.limits import Limits
from perdure.domain.model import Owner, Status, Task
from perdure.engine import pace as module
from perdure.engine.pace import Pace

ADA = Owner("acme", "ada")
TASK = Task(1, "tsk_a", ADA, Status.WORKING, created_at=0, updated_at=0, poll_ms=1000)


@dataclass
class Bounds:
    polls: int | None = None
    owner_polls: int | None = None
    limits: Limits = field(default_factory=Limits)


class Polls:
    """A client, its clock (seconds), and the task's (milliseconds)."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.at = 0.0
        self.now = 0
        self.pace = Pace(lambda: bounds or Bounds(), lambda: self.at, lambda: self.now)

    def poll(self, task: Task = TASK, owner: Owner = ADA, *, counted: bool = True) -> int | None:
        return self.pace.interval(self.pace.admit(owner, task.id, counted=counted), task)

    def refused(self, task: Task = TASK, owner: Owner = ADA) -> int:
        """After how many milliseconds it is to come back."""
        with pytest.raises(PolledTooOften) as refused:
            self.poll(task, owner)
        return refused.value.retry_after_ms

    def every(self, seconds: float, times: int, task: Task = TASK) -> int | None:
        """What the last of so many polls is told."""
        told = None
        for _ in range(times):
            self.at += seconds
            told = self.poll(task)
        return told


def test_a_client_that_keeps_to_its_interval_is_told_what_the_tool_says() -> None:
    assert Polls().every(1, 1000) == 1000


def test_a_client_that_asks_a_few_times_at_once_is_told_the_same() -> None:
    assert Polls().every(0, 5) == 1000


def test_a_client_that_asks_too_often_is_told_longer_and_longer_and_then_no_longer() -> None:
    polls = Polls()
    told = [polls.every(0.5, 10) for _ in range(10)]
    assert told == sorted(told)  # pyright: ignore[reportArgumentType] - all are numbers
    assert (told[0], told[-1]) == (1100, 8000)


def test_a_client_that_keeps_to_what_it_was_told_is_soon_told_the_same_as_before() -> None:
    polls = Polls()
    told = polls.every(0.1, 100)
    answers = 0
    while told != 1000:
        assert told is not None
        told, answers = polls.every(told / 1000, 1), answers + 1
    assert answers <= 4


def test_who_asks_far_too_often_is_refused_and_told_when_to_come_back() -> None:
    polls = Polls(Bounds(limits=Limits(polls_per_second=2)))
    polls.every(0, 20)
    with pytest.raises(PolledTooOften) as refused:
        polls.poll()
    assert refused.value.retry_after_ms == 1000
    assert polls.every(0.5, 1) == 4100


def test_a_poll_that_was_refused_does_not_count() -> None:
    polls = Polls(Bounds(limits=Limits(polls_per_second=1)))
    polls.every(0, 10)
    for _ in range(100):
        polls.at += 0.009
        with pytest.raises(PolledTooOften):
            polls.poll()
    assert polls.every(0.2, 1) is not None


@pytest.mark.parametrize("of_owner", [False, True])
@pytest.mark.parametrize("rate", [1, 3, 7, 1000])
def test_a_poll_that_was_refused_is_admitted_when_it_was_told_to_come_back(rate: int, of_owner: bool) -> None:
    quick = replace(TASK, poll_ms=1)
    more = 1_000_000
    of_one, of_all = (more, rate) if of_owner else (rate, more)
    polls = Polls(Bounds(owner_polls=of_all, limits=Limits(polls_per_second=of_one)))
    polls.every(0, 10 * rate, quick)
    for _ in range(20):
        told = polls.refused(quick)
        polls.at += (told - 3) / 1000
        if told > 3:
            polls.refused(quick)
        polls.at += 3 / 1000
        while True:  # as many as that is time for
            try:
                polls.poll(quick)
            except PolledTooOften:
                break


def test_who_was_refused_comes_back_no_sooner_than_at_the_interval_of_the_task() -> None:
    polls = Polls(Bounds(owner_polls=1000, limits=Limits(polls_per_second=1000)))
    slow = replace(TASK, poll_ms=5000)
    polls.every(0, 10_000, slow)
    assert polls.refused(slow) == 5000
    assert polls.refused(replace(TASK, id="tsk_new")) == 1000


def test_one_owner_that_asks_for_ever_other_ids_is_refused_and_nobody_else() -> None:
    polls = Polls(Bounds(owner_polls=100))
    for number in range(1000):
        polls.poll(replace(TASK, id=f"tsk_{number}"))
    assert polls.refused(replace(TASK, id="tsk_another")) == 1000
    assert polls.refused(replace(TASK, id="tsk_0")) == 1000
    assert polls.poll(owner=Owner("acme", "bob")) == 1000
    polls.at += 1
    for number in range(100):
        polls.poll(replace(TASK, id=f"tsk_{number}"))
    polls.refused(replace(TASK, id="tsk_0"))


def test_what_is_no_poll_is_bounded_by_itself_and_delays_no_poll() -> None:
    polls = Polls(Bounds(limits=Limits(polls_per_second=1)))
    for _ in range(10):
        polls.pace.spend(ADA, "other tsk_a")
    with pytest.raises(PolledTooOften) as refused:
        polls.pace.spend(ADA, "other tsk_a")
    assert refused.value.retry_after_ms > 0
    assert polls.every(0, 5) == 1000
    polls.pace.spend(ADA, "other tsk_b")
    polls.every(0, 5)
    polls.refused()
    polls.at += 1
    polls.pace.spend(ADA, "other tsk_a")


def test_in_all_an_owner_has_one_budget_for_polls_and_everything_else() -> None:
    polls = Polls(Bounds(owner_polls=1))
    for number in range(10):
        polls.pace.spend(ADA, f"other {number}")
    polls.refused()
    polls.pace.spend(Owner("acme", "bob"), "other 1")


@pytest.mark.parametrize("bound", [None, 1])
def test_an_owner_that_is_everybody_has_no_bound_of_its_own(bound: int | None) -> None:
    polls = Polls(Bounds(owner_polls=bound))
    for number in range(1000):
        polls.poll(replace(TASK, id=f"tsk_{number}"), counted=bound is None)


def test_what_others_ask_and_what_is_asked_of_others_counts_for_nobody_else() -> None:
    polls = Polls(Bounds(limits=Limits(polls_per_second=1)))
    bob = Owner("acme", "bob")
    for _ in range(10):
        polls.poll(owner=bob)
    with pytest.raises(PolledTooOften):
        polls.poll(owner=bob)
    assert polls.poll() == 1000
    assert polls.poll(replace(TASK, id="tsk_b"), bob) == 1000


@pytest.mark.parametrize(("age", "told"), [(20_000, 1000), (60_000, 3000), (600_000, 30_000), (10**10, 30_000)])
def test_an_old_task_is_asked_for_every_twentieth_of_its_age(age: int, told: int) -> None:
    polls = Polls()
    polls.now = age
    assert polls.poll() == told


def test_a_tool_that_says_longer_is_right() -> None:
    polls = Polls()
    polls.now = 10**10
    assert polls.poll(replace(TASK, poll_ms=60_000)) == 60_000


def test_a_task_of_the_future_is_no_younger_than_new() -> None:
    polls = Polls()
    polls.now = -(10**6)
    assert polls.poll() == 1000


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_a_task_that_is_over_says_what_its_tool_did(status: Status) -> None:
    polls = Polls()
    polls.now = 10**10
    assert polls.every(0, 100, replace(TASK, status=status)) == 1000


def test_a_tool_that_says_nothing_stays_silent() -> None:
    assert Polls().poll(replace(TASK, poll_ms=None)) is None


def test_a_process_that_has_to_answer_too_much_tells_everybody_longer_in_proportion() -> None:
    polls = Polls(Bounds(polls=10))
    tasks = [replace(TASK, id=f"tsk_{number}") for number in range(30)]
    for task in tasks:
        assert polls.poll(task) == 1000
    polls.at = 1.0
    assert polls.poll(tasks[0]) == 3100
    polls.at = 2.0
    assert polls.poll(tasks[1]) == 1000


def test_however_much_there_is_to_answer_nobody_is_told_more_than_thirty_times_as_long() -> None:
    polls = Polls(Bounds(polls=1))
    polls.every(0, 1)
    for number in range(1000):
        polls.poll(replace(TASK, id=f"tsk_{number}"), Owner("acme", "mallory"))
    polls.at = 1.0
    assert polls.poll() == 30_000


def test_where_there_is_no_room_it_is_who_asks_for_most_that_forgets_what_it_asked_for_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT", 10)
    polls = Polls(Bounds(limits=Limits(polls_per_second=1)))
    mallory, bob = Owner("acme", "mallory"), Owner("acme", "bob")
    for owner in (ADA, bob):
        for _ in range(10):
            polls.poll(owner=owner)
    for number in range(1000):
        polls.poll(replace(TASK, id=f"made_up_{number}"), mallory)
    for owner in (ADA, bob):
        polls.refused(owner=owner)
    for _ in range(9):
        polls.poll(replace(TASK, id="made_up_999"), mallory)
    polls.refused(replace(TASK, id="made_up_999"), mallory)
    for _ in range(10):
        polls.poll(replace(TASK, id="made_up_991"), mallory)


def test_among_owners_that_ask_for_as_much_the_one_that_asked_longest_ago_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    polls = Polls(Bounds(owner_polls=1))
    bob, carol = Owner("acme", "bob"), Owner("acme", "carol")
    for owner in (ADA, bob, ADA):
        polls.poll(owner=owner)
    for _ in range(8):
        polls.poll()
    polls.poll(owner=carol)  # instead of bob
    polls.refused()
    for _ in range(10):
        polls.poll(owner=bob)


def test_those_that_asked_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    polls = Polls(Bounds(limits=Limits(polls_per_second=1)))
    first, second, third = (replace(TASK, id=name) for name in ("a", "b", "c"))
    polls.every(0, 10, first)
    polls.every(0, 10, second)
    with pytest.raises(PolledTooOften):
        polls.poll(first)
    polls.poll(third)
    with pytest.raises(PolledTooOften):
        polls.poll(first)
    assert polls.poll(second) == 1000


def test_clocks_are_the_machines_unless_told_otherwise() -> None:
    pace = Pace(Bounds)
    assert pace.interval(pace.admit(ADA, TASK.id), TASK) == 30_000
