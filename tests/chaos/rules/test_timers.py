"""Timers that rang too early."""

from dataclasses import replace

from chaos.kinds import BRIEF
from tests.chaos.support import EFFECTS, LAWFUL, broken, call, effect, get, task, told

EARLY = "a timer is not early"


def slept(*lines: tuple[str, str, float], true_time: bool = True) -> list[str]:
    """What is found if a timer of 5 seconds was set and rang: lines of run, event and instant."""
    effects = [replace(effect(event, run, "nap", 5), at=at) for run, event, at in lines]  # pyright: ignore[reportArgumentType] - of literals
    found = broken(replace(LAWFUL, effects=(*EFFECTS[:-1], *effects, EFFECTS[-1]), true_time=true_time))
    assert set(found) <= {EARLY}
    return found.get(EARLY, [])


def test_a_timer_may_be_late() -> None:
    assert not slept(("r1", "timer", 10), ("r2", "timer", 13), ("r2", "rang", 15.001))
    assert not slept(("r1", "timer", 10), ("r2", "timer", 19), ("r2", "rang", 19.1))


def test_a_timer_that_rang_early_is_found() -> None:
    assert slept(("r1", "timer", 10), ("r2", "rang", 14.5)) == ["'nap' was to last 5 s, and lasted 4.500 s"]
    assert slept(("r1", "timer", 10), ("r2", "rang", 15.1), ("r3", "rang", 14.5))


def test_where_clocks_are_set_nothing_can_be_said() -> None:
    assert not slept(("r1", "timer", 10), ("r2", "rang", 14.5), true_time=False)


def test_a_task_that_expired_early_is_found() -> None:
    gone = task("failed", 9, error={"code": -32603, "message": "The task has expired"})
    for lived in (BRIEF - 5, BRIEF + 5):
        found = told(call(kind="brief", label="brief-1"), get(lived, gone, received=lived), instead=())
        assert (EARLY in found) == (lived < BRIEF)
