"""The line before a backend: who is in, who waits, who comes next."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.gateway.faults import Overloaded
from perdure.gateway.gate import Gate, Line, State, Ticket
from tests.support import eventually

from .upstreams import place


def test_as_many_are_in_as_may_be_and_the_others_wait_in_order() -> None:
    line = Line(2, 2)
    tickets = [line.enter("a") for _ in range(5)]
    assert [each.state for each in tickets] == [State.IN, State.IN, State.WAITS, State.WAITS, State.OUT]
    line.leave(tickets[1])
    assert tickets[2].state is State.IN
    assert (line.inside, line.waiting) == (2, 1)


def test_places_go_round_the_lanes() -> None:
    line = Line(1, 10)
    inside = line.enter("a")
    waiting = [line.enter(lane) for lane in "aaabbc"]
    order: list[int] = []
    for _ in waiting:
        line.leave(inside)
        (at,) = [at for at, each in enumerate(waiting) if each.state is State.IN]
        inside = waiting[at]
        order.append(at)
    assert order == [0, 3, 5, 1, 4, 2]


def test_on_a_full_line_the_longest_lane_makes_room_for_a_shorter_one() -> None:
    line = Line(1, 3)
    line.enter("a")
    greedy = [line.enter("a") for _ in range(3)]
    told: list[Ticket] = []
    greedy[2].changed = lambda: told.append(greedy[2])
    assert line.enter("b").state is State.WAITS
    assert [each.state for each in greedy] == [State.WAITS, State.WAITS, State.OUT]
    assert told == [greedy[2]]
    assert line.enter("b").state is State.OUT
    assert line.enter("a").state is State.OUT


def test_without_room_nobody_waits() -> None:
    line = Line(1, 0)
    line.enter("a")
    assert line.enter("b").state is State.OUT


def test_leaving_twice_frees_one_place() -> None:
    line = Line(1, 5)
    first, second, third = [line.enter("a") for _ in range(3)]
    line.leave(first)
    line.leave(first)
    assert (second.state, third.state) == (State.IN, State.WAITS)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave"]), st.sampled_from("abc"), st.integers(0, 9)), max_size=60))
def test_whatever_happens_the_bounds_hold_and_nobody_waits_beside_a_free_place(
    steps: list[tuple[str, str, int]],
) -> None:
    line, tickets = Line(2, 3), list[Ticket]()
    for step, lane, which in steps:
        if step == "enter":
            tickets.append(line.enter(lane))
        elif tickets:
            line.leave(tickets.pop(which % len(tickets)))
        states = Counter(each.state for each in tickets)
        assert (line.inside, line.waiting) == (states[State.IN], states[State.WAITS])
        assert line.inside <= 2
        assert line.waiting <= 3
        assert line.inside == 2 or line.waiting == 0


async def test_who_does_not_get_in_within_its_deadline_is_told_and_leaves_the_line() -> None:
    gate = Gate("b", 1, 5, patience=math.inf)
    async with place(gate, "a", math.inf):
        with pytest.raises(Overloaded) as caught:
            async with place(gate, "a", anyio.current_time() - 1):
                raise AssertionError("it was let in")
        assert caught.value.retry_after_ms
        assert not caught.value.begun
        assert gate.line.waiting == 0
    assert gate.line.inside == 0


async def test_nobody_waits_longer_than_the_gate_has_patience_for() -> None:
    gate = Gate("b", 1, 5, patience=0.01)
    async with place(gate, "a", math.inf):
        with pytest.raises(Overloaded):
            async with place(gate, "a", math.inf):
                raise AssertionError("it was let in")


async def test_a_place_is_given_on_whoever_leaves_and_however() -> None:
    gate = Gate("b", 1, 5, patience=math.inf)
    inside, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with place(gate, "a", math.inf):
            inside.set()
            await leave.wait()

    async with asyncio.TaskGroup() as group:
        first = group.create_task(hold())
        await inside.wait()
        second = group.create_task(hold())
        third = group.create_task(hold())
        await eventually(lambda: gate.line.waiting == 2, "two wait")
        second.cancel()  # while it waits
        await eventually(lambda: gate.line.waiting == 1, "one has left the line")
        inside.clear()
        first.cancel()  # while it is in
        await inside.wait()
        leave.set()
    assert not third.cancelled()
    assert (gate.line.inside, gate.line.waiting) == (0, 0)


async def test_a_place_that_is_given_to_who_is_just_being_cancelled_goes_to_the_next() -> None:
    gate = Gate("b", 1, 5, patience=math.inf)
    entered = list[str]()

    async def hold(name: str) -> None:
        async with place(gate, name, math.inf):
            entered.append(name)

    async with asyncio.TaskGroup() as group:
        async with place(gate, "a", math.inf):
            second = group.create_task(hold("second"))
            group.create_task(hold("third"))
            await eventually(lambda: gate.line.waiting == 2, "two wait")
        second.cancel()  # it has the place by now, and does not know
    assert entered == ["third"]
    assert gate.line.inside == 0


async def test_who_is_turned_out_for_another_lane_hears_at_once() -> None:
    gate = Gate("b", 1, 2, patience=math.inf)

    async def ask(lane: str) -> None:
        async with place(gate, lane, math.inf):
            pass

    async with place(gate, "a", math.inf):
        greedy = [asyncio.create_task(ask("a")) for _ in range(2)]
        await eventually(lambda: gate.line.waiting == 2, "the line is full")
        modest = asyncio.create_task(ask("b"))
        with pytest.raises(Overloaded):
            await greedy[1]
    await asyncio.gather(greedy[0], modest)
