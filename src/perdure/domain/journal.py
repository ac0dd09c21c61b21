"""The journal of a task: what its code did so far, and whether the code that runs now does the same.

A tool is run again from its first line after every wait and every crash. Each of its durable verbs (step, sleep,
question, external work, gather) leaves an entry, and a verb that finds its entry returns what stands there. That is
right only while the code asks for the same things in the same order, so every entry has a place, and the code has to
come by that place with the same verb:

    place = scope + number of the verb within its scope     3       the fourth verb of the tool
    scope = "" for the tool, place.branch/ in a gather       3.0/1   the second verb of the gather's first branch

Branches that run side by side have scopes of their own, because which of them gets further first is chance.

Nothing here runs or waits; `engine/run.py` does. Stores keep the entries, and ask `settled`, `repeated` and `undone`
what to write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hmac import compare_digest

from .errors import AlreadySettled, JournalMismatch, TaskNotFound
from .model import JSON, Asked, InputRequest

__all__ = [
    "Entry",
    "EntryState",
    "Journal",
    "Replay",
    "Scope",
    "Verb",
    "Waits",
    "admitted",
    "in_order",
    "repeated",
    "settled",
    "undone",
]


class Verb(StrEnum):
    """The durable verbs, each the kind of an entry."""

    STEP = "step"
    SLEEP = "sleep"
    ASK = "ask"
    EXTERNAL = "external"
    GATHER = "gather"


class EntryState(StrEnum):
    """How far a verb is.

    STARTED: begun, and not known to be over. RETRYING: it failed and is to be tried again. DONE, FAILED: the value says
    what came of it.
    """

    STARTED = "started"
    RETRYING = "retrying"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One verb of a task, at its place.

    `wake_at`: when a sleep is over, external work is given up, or a step is tried again; milliseconds since the epoch.
    """

    place: str
    verb: Verb
    name: str
    state: EntryState
    value: JSON = None
    wake_at: int | None = None

    @property
    def over(self) -> bool:
        """Whether it came to its end, good or bad."""
        return self.state in (EntryState.DONE, EntryState.FAILED)

    @property
    def retrying(self) -> bool:
        """Whether it is a step that failed and is to be tried again."""
        return self.state is EntryState.RETRYING

    @property
    def minds_cancel(self) -> bool:
        """Whether it is external work under way that is to be told if somebody asks the task to stop."""
        told = isinstance(self.value, dict) and self.value.get("tell") is True
        return self.verb is Verb.EXTERNAL and not self.over and told

    def __str__(self) -> str:
        return f"{self.verb.value} {self.name!r}" if self.name else self.verb.value


@dataclass(frozen=True, slots=True)
class Journal:
    """All that a task has on record: its entries by place, and its questions by key in the order of asking."""

    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    questions: Mapping[str, InputRequest] = field(default_factory=dict[str, InputRequest])


@dataclass(frozen=True, slots=True)
class Waits:
    """What a run that is put aside waits for. Any one of them is enough to go on.

    `asked`: questions, by key; they count together, once none is open any more. `begun`: entries that enter the journal
    with the wait, each with the milliseconds until it wakes the run, or None. `places`: the entries that are waited
    for, of those in `begun` or recorded before: until they are over, or their `wake_at` has come. `minds_cancel`: a
    request to cancel is a reason to go on as well, since the code has something to do about it.
    """

    asked: Mapping[str, Asked] = field(default_factory=dict[str, Asked])
    begun: tuple[tuple[Entry, int | None], ...] = ()
    places: frozenset[str] = frozenset()
    minds_cancel: bool = False


class Scope:
    """Numbers the verbs of one line of execution in the order in which it comes to them."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._next = 0

    def next_place(self) -> str:
        """The place of the next verb."""
        place = f"{self._prefix}{self._next}"
        self._next += 1
        return place

    @staticmethod
    def branch(place: str, number: int) -> Scope:
        """The scope of one branch of the gather at `place`."""
        return Scope(f"{place}.{number}/")


class Replay:
    """A journal that is being gone through again, and which of its entries the code has come by."""

    def __init__(self, journal: Journal) -> None:
        self._keys: dict[str, set[str]] = {}
        for key, question in journal.questions.items():
            if question.place is not None:
                self._keys.setdefault(question.place, set()).add(key)
        asks = {place: _ask(place, keys) for place, keys in self._keys.items()}
        gathers = {place: _gather(place) for known in (*journal.entries, *asks) for place in _gathers_around(known)}
        self._entries: dict[str, Entry] = {**journal.entries, **asks, **gathers}
        self._left = set(self._entries)

    def find(self, place: str, verb: Verb, name: str = "") -> Entry | None:
        """What stands at `place`, if the code has been here before.

        Raises:
            JournalMismatch: another verb stands there, or the same one under another name.
        """
        entry = self._entries.get(place)
        if entry is None:
            return None
        if (entry.verb, entry.name) != (verb, name):
            raise _mismatch(entry, Entry(place, verb, name, entry.state))
        self._left.discard(place)
        return entry

    def find_ask(self, place: str, keys: Collection[str]) -> None:
        """That nothing else stands at `place` than questions among `keys`; some of those may have been asked before.

        Raises:
            JournalMismatch: something else does.
        """
        entry = self._entries.get(place)
        if entry is not None:
            if entry.verb is not Verb.ASK or not self._keys[place] <= set(keys):
                raise _mismatch(entry, _ask(place, keys))
            self._left.discard(place)

    def note(self, entry: Entry) -> None:
        """Take up what was recorded just now."""
        self._entries[entry.place] = entry
        self._left.discard(entry.place)

    def check_complete(self) -> None:
        """That the code, having come to its end, has come by everything that it once did.

        Raises:
            JournalMismatch: it has not.
        """
        if self._left:
            place = min(self._left, key=in_order)
            raise JournalMismatch(place, f"has {self._entries[place]}", "ended without coming there")


# Two kinds of entries are not stored: the questions are, and what a gather's branches did.


def _ask(place: str, keys: Iterable[str]) -> Entry:
    return Entry(place, Verb.ASK, ", ".join(sorted(keys)), EntryState.DONE)


def _gather(place: str) -> Entry:
    return Entry(place, Verb.GATHER, "", EntryState.DONE)


def _gathers_around(place: str) -> Iterable[str]:
    """The places of the gathers that a verb is inside of."""
    parts = place.split("/")[:-1]
    return ("/".join(parts[: depth + 1]).rpartition(".")[0] for depth in range(len(parts)))


def _mismatch(entry: Entry, found: Entry) -> JournalMismatch:
    return JournalMismatch(entry.place, f"has {entry}", f"comes there with {found}")


def undone(places: Iterable[str], failed: str) -> frozenset[str]:
    """Those of `places` that another attempt does again: the step that failed, and whatever came after it.

    That is what follows in its scope, and what follows the gathers around it: a gather ends after all its branches.
    What its other branches did is theirs and stays.
    """
    bounds = tuple(_undone_from(failed))
    return frozenset(
        place
        for place in places
        if any(place.startswith(scope) and _first(place[len(scope) :]) >= number for scope, number in bounds)
    )


def _undone_from(failed: str) -> Iterable[tuple[str, int]]:
    """For each scope around a failed step, the first number in it that is done again."""
    scope, slash, number = failed.rpartition("/")
    yield scope + slash, int(number)
    while scope:
        gather = scope.rpartition(".")[0]
        scope, slash, number = gather.rpartition("/")
        yield scope + slash, int(number) + 1


def _first(rest: str) -> int:
    return int(rest.split("/", 1)[0].split(".", 1)[0])


def in_order(place: str) -> list[list[int]]:
    """A key to sort places by, as the code comes by them: 3, 3.0/0, 3.0/1, 3.1/0, 4, 10."""
    return [[int(number) for number in part.split(".")] for part in place.split("/")]


def repeated(entry: Entry, stands: Entry | None) -> Entry | None:
    """What stands already, if it records the same failed try as `entry`.

    A worker that never heard whether its write was committed makes it again; it is one try all the same.
    """
    if not entry.retrying or stands is None:
        return None
    return stands if (stands.state, stands.value) == (entry.state, entry.value) else None


def admitted(entry: Entry | None, token: str) -> Entry:
    """External work of which whoever has the token may speak.

    Raises:
        TaskNotFound: there is no such work, or the token is another.
    """
    if entry is None or entry.verb is not Verb.EXTERNAL or not _admits(entry, token):
        raise TaskNotFound
    return entry


def settled(entry: Entry | None, token: str, state: EntryState, value: JSON) -> Entry | None:
    """External work at its end, as its entry says it from then on; None if that was said before, in the same words.

    The token stays with the entry, so that who comes too late and who never knew it can be told apart.

    Raises:
        TaskNotFound: there is no such work, or the token is another.
        AlreadySettled: it has ended otherwise.
    """
    entry = admitted(entry, token)
    after = replace(entry, state=state, value={"token": token, "value": value})
    if entry.over and entry != after:
        raise AlreadySettled
    return None if entry.over else after


def _admits(entry: Entry, token: str) -> bool:
    known = entry.value.get("token") if isinstance(entry.value, dict) else None
    # An entry without a token admits nobody, not even who brings none. What does come may be any text at all.
    return isinstance(known, str) and known != "" and compare_digest(_bytes(known), _bytes(token))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
