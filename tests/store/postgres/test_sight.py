"""What a replica remembers of the queue: nothing is out of sight for good, and what is remembered is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from perdure.store.postgres.sight import EVERYTHING, Sight

HANDLER = "tools/call:report"
WANTED = [(HANDLER, 10)]
names = st.text(alphabet=st.characters(min_codepoint=1, exclude_categories=["Cs"]), max_size=4)


class Stopwatch:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def lies_in(tenant: str, start: str, end: str | None) -> bool:
    """As the database compares: by bytes."""
    return start.encode() <= tenant.encode() and (end is None or tenant.encode() < end.encode())


@given(st.lists(names, max_size=6), names, st.none() | names)
def test_every_tenant_is_known_or_lies_in_one_gap(known: list[str], tenant: str, last: str | None) -> None:
    sight = Sight()
    for name in known:
        sight.taken(HANDLER, name, -1_000)
    looked_at = [name for _, _, name, _ in sight.known(WANTED) if name == tenant]
    after = {} if last is None else {HANDLER: last}
    looked_at += [start for _, _, start, end in sight.gaps(WANTED, after) if lies_in(tenant, start, end)]
    assert len(looked_at) == 1


@given(st.lists(names, max_size=6), names, names)
def test_no_gap_goes_on_past_the_tenant_that_was_served_last(known: list[str], last: str, later: str) -> None:
    """Of each gap only the first few tenants are looked for, and the turn is at whoever comes next to that one."""
    sight = Sight()
    for name in known:
        sight.taken(HANDLER, name, -1_000)
    for _, _, start, end in sight.gaps(WANTED, {HANDLER: last, "tools/call:other": later}):
        assert not (lies_in(last, start, end) and lies_in(f"{last}\x01", start, end))


def test_a_look_begins_a_little_before_what_was_claimed_last() -> None:
    sight = Sight()
    assert sight.since(HANDLER, "acme") == EVERYTHING
    sight.taken(HANDLER, "acme", -5_000)
    assert EVERYTHING < sight.since(HANDLER, "acme") < -5_000
    assert sight.since("tools/call:other", "acme") == EVERYTHING
    assert [*sight.known([("tools/call:other", 1)])] == []


def test_tenants_that_were_served_longest_ago_are_forgotten() -> None:
    sight = Sight()
    for number in range(1_000):
        sight.taken(HANDLER, f"t{number}", -5_000)
        sight.taken(HANDLER, "often", -5_000)
    known = [name for _, _, name, _ in sight.known(WANTED)]
    assert 10 < len(known) < 500
    assert {"often", "t999"} <= set(known)


def test_a_full_look_is_had_at_once_if_there_is_not_enough_and_else_now_and_then() -> None:
    clock = Stopwatch()
    sight = Sight(clock)
    assert not sight.worth_a_full_look(enough=False)  # nothing is out of sight yet
    sight.taken(HANDLER, "acme", -5_000)
    assert sight.worth_a_full_look(enough=False)
    sight.looked(clock.now)
    assert sight.worth_a_full_look(enough=False)
    assert not sight.worth_a_full_look(enough=True)
    clock.now += 10
    assert sight.worth_a_full_look(enough=True)


def test_what_is_remembered_is_forgotten_when_the_clock_is_set_back() -> None:
    sight = Sight()
    assert not sight.set_back(10_000)
    sight.taken(HANDLER, "acme", -5_000)
    sight.promoted(10_000)
    assert not sight.set_back(9_950)
    assert not sight.set_back(11_000)
    assert sight.set_back(5_000)
    assert (sight.since(HANDLER, "acme"), sight.timers) == (EVERYTHING, 0)
    assert not sight.set_back(5_001)


def test_a_full_look_that_is_slow_is_had_less_often() -> None:
    clock = Stopwatch()
    sight = Sight(clock)
    sight.taken(HANDLER, "acme", -5_000)
    started = clock.now
    clock.now += 1
    sight.looked(started)
    clock.now += 5
    assert not sight.worth_a_full_look(enough=False)
    clock.now += 60
    assert sight.worth_a_full_look(enough=False)


def test_timers_are_looked_for_from_a_little_before_the_last_ones() -> None:
    sight = Sight()
    assert sight.timers == 0
    sight.promoted(5_000)
    assert 0 < sight.timers < 5_000
    assert sight.worth_a_full_look(enough=False)
    sight.promoted(1)
    assert sight.timers == 0
