"""What a worker would claim next: in which order, and never more than anything bounds."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.lifecycle import created
from perdure.domain.model import Claim, Demand, JSONObject, NewTask, Outcome, Owner
from perdure.engine.demand import Planner, Round
from perdure.engine.handler import Handler, Placement
from perdure.engine.run import Run
from tests.engine.support import Coroutine, done
from tests.store.support import new_task


async def _work(run: Run, params: JSONObject) -> Outcome:
    return done()


def placed(**placements: Placement) -> dict[str, Handler]:
    return {name: Coroutine(_work, placement=placement) for name, placement in placements.items()}


def claim(handler: str, tenant: str = "acme") -> Claim:
    method, _, name = handler.rpartition(":")
    new = _under(new_task(name, owner=Owner(tenant, "ada")), method)
    assert new.operation.handler == handler
    return Claim(created(1, new, 0), new.operation, fence=1, at=0)


def _under(new: NewTask, method: str) -> NewTask:
    return replace(new, operation=replace(new.operation, method=method))


def handlers(**placements: Placement) -> dict[str, Handler]:
    return {f"tools/call:{name}": handler for name, handler in placed(**placements).items()}


def name_of(demand: Demand) -> str:
    return demand.handler.removeprefix("tools/call:")


def order(planner: Planner, known: dict[str, Handler]) -> list[str]:
    return [name_of(demand) for wanted in planner.plan(known) for demand in wanted.demands]


def one_round(planner: Planner, known: dict[str, Handler]) -> Round:
    (wanted,) = planner.plan(known)
    return wanted


PLAIN = Placement()


def test_the_larger_priority_comes_first_whatever_the_turn() -> None:
    known = handlers(low=Placement(priority=-1), mid=PLAIN, high=Placement(priority=5))
    planner = Planner(4)
    for _ in range(6):
        assert order(planner, known) == ["high", "mid", "low"]


def test_equals_take_turns_at_being_first() -> None:
    known = handlers(a=PLAIN, b=PLAIN, c=PLAIN, urgent=Placement(priority=1))
    planner = Planner(4)
    firsts = Counter(order(planner, known)[1] for _ in range(40))
    assert set(firsts) == {"a", "b", "c"}
    assert min(firsts.values()) >= 10


def test_all_free_slots_are_demanded_of_each_handler_and_no_more_in_all() -> None:
    planner = Planner(4)
    known = handlers(a=PLAIN, b=PLAIN)
    wanted = one_round(planner, known)
    assert (wanted.limit, {demand.limit for demand in wanted.demands}) == (4, {4})
    for _ in range(3):
        planner.began(claim("tools/call:a"))
    assert planner.free == 1
    assert one_round(planner, known).limit == 1
    planner.began(claim("tools/call:b"))
    assert (planner.free, list(planner.plan(known))) == (0, [])
    planner.ended(claim("tools/call:a"))
    assert (planner.free, one_round(planner, known).limit) == (1, 1)


def test_a_tool_is_demanded_up_to_its_own_bound_and_then_not_at_all() -> None:
    planner = Planner(4)
    known = handlers(few=Placement(concurrency=2), many=PLAIN)
    limits = {name_of(demand): demand.limit for demand in one_round(planner, known).demands}
    assert limits == {"few": 2, "many": 4}
    planner.began(claim("tools/call:few"))
    limits = {name_of(demand): demand.limit for demand in one_round(planner, known).demands}
    assert limits == {"few": 1, "many": 3}
    planner.began(claim("tools/call:few"))
    assert order(planner, known) == ["many"]


def test_queues_that_are_not_served_are_never_demanded() -> None:
    known = handlers(a=PLAIN, gpu=Placement(queue="gpu"), mail=Placement(queue="mail"))
    planner = Planner(4, {"gpu": None, "default": 1})
    assert planner.served(known) == ["tools/call:a", "tools/call:gpu"]
    assert set(order(planner, known)) == {"a", "gpu"}
    assert Planner(4).served(known) == ["tools/call:a", "tools/call:gpu", "tools/call:mail"]
    assert Planner(4, {}).served(known) == []
    assert list(Planner(4, {}).plan(known)) == []


def test_a_queue_with_a_bound_is_asked_for_by_itself() -> None:
    known = handlers(a=PLAIN, x=Placement(queue="gpu"), y=Placement(queue="gpu"))
    planner = Planner(4, {"gpu": 2, "default": None})
    gpu, rest = planner.plan(known)
    assert (gpu.limit, {name_of(demand) for demand in gpu.demands}) == (2, {"x", "y"})
    assert (rest.limit, {name_of(demand) for demand in rest.demands}) == (4, {"a"})


def test_what_is_urgent_comes_first_whatever_queues_have_bounds_of_their_own() -> None:
    known = handlers(
        slow=Placement("slow"), urgent=Placement("rest", 9), idle=Placement("slow", -1), late=Placement("rest", -2)
    )
    rounds = list(Planner(4, {"slow": 2, "rest": None}).plan(known))
    assert [[name_of(demand) for demand in each.demands] for each in rounds] == [["urgent"], ["slow", "idle"], ["late"]]


def test_queues_of_one_priority_take_turns_at_being_first_and_are_asked_for_once_each() -> None:
    known = handlers(a=Placement("x"), b=Placement("y"), c=Placement("x"), d=Placement("y"))
    planner = Planner(4, {"x": 2, "y": None})
    firsts: set[str] = set()
    for _ in range(8):
        one, other = planner.plan(known)
        assert {name_of(demand) for demand in (*one.demands, *other.demands)} == set("abcd")
        firsts.add(name_of(one.demands[0]))
    assert firsts == set("abcd")


def test_a_round_is_planned_after_what_the_one_before_brought() -> None:
    known = handlers(a=PLAIN, x=Placement(queue="gpu"))
    planner = Planner(3, {"gpu": 2, "default": None})
    rounds = planner.plan(known)
    next(rounds)
    for _ in range(2):
        planner.began(claim("tools/call:x"))
    assert next(rounds).limit == 1
    assert [wanted.limit for wanted in planner.plan(known)] == [1]  # the queue is at its bound


def test_what_runs_under_a_handler_that_is_gone_counts_for_the_worker_and_for_no_queue() -> None:
    planner = Planner(3, {"gpu": 1, "default": None})
    known = handlers(x=Placement(queue="gpu"))
    planner.began(claim("tools/call:gone"))
    assert (planner.free, one_round(planner, known).limit) == (2, 1)


def test_tenants_are_served_from_after_the_one_that_was_served_last() -> None:
    planner = Planner(4)
    known = handlers(a=PLAIN, b=PLAIN)
    assert {demand.after for demand in one_round(planner, known).demands} == {None}
    planner.began(claim("tools/call:a", "blue"))
    planner.began(claim("tools/call:a", "acme"))
    planner.ended(claim("tools/call:a", "blue"))
    afters = {name_of(demand): demand.after for demand in one_round(planner, known).demands}
    assert afters == {"a": "acme", "b": None}


def test_without_handlers_there_is_nothing_to_ask_for() -> None:
    assert list(Planner(4).plan({})) == []


# -- over random histories ---------------------------------------------------------------------------------------------

QUEUES = ("default", "gpu", "mail")
placements = st.builds(
    Placement,
    queue=st.sampled_from(QUEUES),
    priority=st.integers(-2, 2),
    concurrency=st.none() | st.integers(1, 3),
)
served = st.none() | st.dictionaries(st.sampled_from(QUEUES), st.none() | st.integers(1, 3))


@given(
    concurrency=st.integers(1, 6),
    queues=served,
    by_name=st.dictionaries(st.sampled_from("abcdef"), placements, min_size=1),
    data=st.data(),
)
def test_no_bound_is_ever_exceeded(
    concurrency: int, queues: dict[str, int | None] | None, by_name: dict[str, Placement], data: st.DataObject
) -> None:
    """Against a store that gives whatever it may, and work that ends whenever it likes."""
    planner = Planner(concurrency, queues)
    known = handlers(**by_name)
    running: list[str] = []
    for _ in range(data.draw(st.integers(1, 8))):
        for wanted in planner.plan(known):
            assert wanted.limit >= 1
            given = 0
            for demand in wanted.demands:
                assert 1 <= demand.limit <= wanted.limit
                for _ in range(data.draw(st.integers(0, min(demand.limit, wanted.limit - given)))):
                    given += 1
                    running.append(demand.handler)
                    planner.began(claim(demand.handler))
            _check(running, concurrency, queues, known)
        for handler in data.draw(st.lists(st.sampled_from(running), unique=True) if running else st.just([])):
            running.remove(handler)
            planner.ended(claim(handler))
        assert planner.free == concurrency - len(running)


def _check(
    running: list[str], concurrency: int, queues: dict[str, int | None] | None, known: dict[str, Handler]
) -> None:
    assert len(running) <= concurrency
    for handler, count in Counter(running).items():
        most = known[handler].placement.concurrency
        assert most is None or count <= most
    for queue, count in Counter(known[handler].placement.queue for handler in running).items():
        assert queues is None or queue in queues
        most = None if queues is None else queues[queue]
        assert most is None or count <= most


@given(
    concurrency=st.integers(1, 6),
    queues=served,
    by_name=st.dictionaries(st.sampled_from("abcdef"), placements, min_size=1),
)
def test_whatever_may_be_claimed_is_demanded(
    concurrency: int, queues: dict[str, int | None] | None, by_name: dict[str, Placement]
) -> None:
    planner = Planner(concurrency, queues)
    known = handlers(**by_name)
    demanded = {demand.handler for wanted in planner.plan(known) for demand in wanted.demands}
    assert demanded == set(planner.served(known))


@pytest.mark.parametrize("names", [("busy", "quiet"), ("quiet", "busy")])
def test_a_busy_handler_gives_way_by_the_next_turn_but_one(names: tuple[str, str]) -> None:
    """With one slot, whoever is first gets it: so being first has to go round."""
    planner = Planner(1)
    known = handlers(**dict.fromkeys(names, PLAIN))
    assert {order(planner, known)[0] for _ in range(2)} == {"busy", "quiet"}
