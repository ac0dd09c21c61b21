"""Programs of durable verbs, as hypothesis draws them, and what it is to run one.

A program stands for the code of a tool. Its branches run side by side: which of them gets further first is drawn, since
in earnest it is chance.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from hypothesis import strategies as st

from perdure.domain.journal import Entry, EntryState, Journal, Replay, Scope, Verb
from perdure.domain.model import InputRequest
from tests.domain.support import NOW

Address = tuple[int, ...]
"""Where a verb is in its program, told without places: its number, and for each gather around it the branch's too."""

Program = tuple["Line", ...]


@dataclass(frozen=True)
class Line:
    """One verb. `keys` are those of its questions, `branches` a gather's."""

    verb: Verb
    name: str = ""
    keys: tuple[str, ...] = ()
    branches: tuple[Program, ...] = ()


@dataclass(frozen=True)
class Came:
    """The code came to a verb."""

    address: Address
    place: str
    line: Line

    @property
    def kept(self) -> bool:
        """Whether it has a record of its own; a gather is known by what its branches did."""
        return self.line.verb is not Verb.GATHER

    @property
    def entry(self) -> Entry | None:
        """What it leaves in the journal; questions are on record elsewhere."""
        if self.line.verb in {Verb.ASK, Verb.GATHER}:
            return None
        return Entry(self.place, self.line.verb, self.line.name, EntryState.DONE, {"of": self.place})

    def __str__(self) -> str:
        name = self.line.name or ", ".join(self.line.keys)
        return f"{self.line.verb} {name!r}" if name else str(self.line.verb)


def come_by(replay: Replay, came: Came) -> Entry | None:
    """What a run does at a verb, before the verb does anything."""
    if came.line.verb is not Verb.ASK:
        return replay.find(came.place, came.line.verb, came.line.name)
    replay.find_ask(came.place, came.line.keys)
    return None


def run(program: Program, chance: Random) -> Iterator[Came]:
    """What the code comes to, in an order in which it may."""
    return _lines(program, Scope(), (), chance)


def in_order(program: Program) -> list[Came]:
    """What the code comes to, in some order or other."""
    return list(run(program, Random(0)))


def _lines(program: Program, scope: Scope, above: Address, chance: Random) -> Iterator[Came]:
    for number, line in enumerate(program):
        place, address = scope.next_place(), (*above, number)
        yield Came(address, place, line)
        running = [
            _lines(branch, Scope.branch(place, which), (*address, which), chance)
            for which, branch in enumerate(line.branches)
        ]
        while running:
            branch = chance.choice(running)
            try:
                yield next(branch)
            except StopIteration:
                running.remove(branch)


def journal_of(came: Iterable[Came]) -> Journal:
    """The record of what the code came to, as a store keeps it."""
    came = list(came)
    return Journal(
        {entry.place: entry for each in came if (entry := each.entry) is not None},
        {key: InputRequest(key, {}, NOW, place=each.place) for each in came for key in each.line.keys},
    )


def traced(came: Iterable[Came]) -> list[Came]:
    """Those that left a trace in the record: all but gathers in whose branches nothing happened."""
    came = list(came)
    kept = [each.address for each in came if each.kept]
    return [each for each in came if any(address[: len(each.address)] == each.address for address in kept)]


# -- how they are drawn ------------------------------------------------------------------------------------------------

# One name comes often, so that a verb would be taken for its neighbour if places were wrong.
_names = st.sampled_from(["charge", "charge", "ship", "0", "1.0/2", "naïve", "a, b"])
_keys = st.sets(st.sampled_from(["who", "when", "why"]), min_size=1).map(lambda drawn: tuple(sorted(drawn)))
_plain = (
    st.builds(Line, st.sampled_from([Verb.STEP, Verb.EXTERNAL]), _names)
    | st.just(Line(Verb.SLEEP))
    | st.builds(Line, st.just(Verb.ASK), keys=_keys)
)


def _gathers(line: st.SearchStrategy[Line]) -> st.SearchStrategy[Line]:
    branches = st.lists(st.lists(line, max_size=3).map(tuple), max_size=3).map(tuple)
    return st.builds(Line, st.just(Verb.GATHER), branches=branches)


def _with_own_keys(program: Program, numbers: Iterator[int]) -> Program:
    """No two questions of a program share a key, as no two of a task may."""
    return tuple(
        replace(
            line,
            keys=tuple(f"{key} {next(numbers)}" for key in line.keys),
            branches=tuple(_with_own_keys(branch, numbers) for branch in line.branches),
        )
        for line in program
    )


_few = st.lists(st.recursive(_plain, lambda line: _plain | _gathers(line), max_leaves=8), max_size=5)
# More than ten verbs, since 10 comes after 9 as a number and not as text.
_many = st.lists(_plain, min_size=9, max_size=13)

programs = (_few | _many).map(lambda lines: _with_own_keys(tuple(lines), count()))
chances = st.integers(0, 2**32).map(Random)
