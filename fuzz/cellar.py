"""Stores on damaged copies of a sound one, asked for everything: what is not served as it was stored has to be refused.

The sound store is asked first, once for each commit that its log holds: a log whose end is torn is an earlier state of
the same store, which is how SQLite is made.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

from perdure.domain.errors import PerdureError, StoreUnavailable, StoreUnusable, TaskNotFound, Unreadable
from perdure.domain.journal import EntryState
from perdure.domain.model import Demand, NewTask, Operation, Owner
from perdure.store.sqlite import SQLiteStore

from .damage import SILENT, Damage, inflict, log_of
from .ground import KEY
from .oracle import Found
from .people import ADA, KINDS, PEOPLE, task_id, token

__all__ = ["Cellar", "cellar"]

JSON = Any
WITHIN: Final = 5.0
"""Seconds that a verb may take."""
_NOW: Final = 1_900_000_000_000
_NEW: Final = NewTask("tsk_" + "n" * 32, Owner("acme", "new"), Operation("tools/call", "greet", {"arguments": {}}))
_EVERYTHING: Final = 100

Asked = Mapping[str, object]
"""What the store said to each question: a value, or the class of the error."""
Verb = Callable[[SQLiteStore], Awaitable[object]]
Open = Callable[[str], SQLiteStore]


def _clock() -> int:
    return _NOW


def plain_store(url: str) -> SQLiteStore:
    """A store as any other, but that its time stands still."""
    return SQLiteStore(url, _clock)


PAGE: Final = "page of "
"""Begins the name of the one verb that may leave rows out."""


class Cellar:
    """`check` tries one damage. `served` counts what was served wrong without anybody being able to tell, by kind."""

    def __init__(self, folder: Path, ground: Path, runner: asyncio.Runner) -> None:
        self._path = folder / "damaged.db"
        self._runner = runner
        self.opens: Open = plain_store
        """Makes the store that is tried."""
        self.within = WITHIN
        self._cold = folder / "cold.db"
        self._hot = folder / "hot.db"
        shutil.copyfile(ground, self._cold)
        shutil.copyfile(ground, self._hot)
        self._states = runner.run(self._live(self._hot))
        foreign = folder / "foreign.db"
        runner.run(_make_foreign(foreign))
        self._foreign_log = foreign.with_name("foreign.log").read_bytes()
        self.served: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def check(self, damage: Damage) -> None:
        """Do it to a copy, and ask that for everything.

        Raises:
            Found: it was served wrong, or in no way that is known.
        """
        self._clear()
        source = self._hot if damage.hot else self._cold
        shutil.copyfile(source, self._path)
        if damage.hot:
            shutil.copyfile(source.with_name("hot.log"), log_of(self._path))
        inflict(damage, self._path, self._foreign_log)
        self._runner.run(self._judge(damage))

    def _clear(self) -> None:
        for each in self._path.parent.glob(f"{self._path.name}*"):
            if each.is_dir():
                shutil.rmtree(each)
            else:
                each.unlink()

    async def _judge(self, damage: Damage) -> None:
        store = self.opens(f"sqlite:///{self._path}")
        try:
            await self._timed("open", store.open())
        except StoreUnusable as unusable:
            self.refused[damage.kind] += 1
            if "\n" in str(unusable) or str(self._path) not in str(unusable):
                raise Found("why a file can't be used is one line", unusable) from None
            return
        try:
            said = await self._ask(store, _READS)
            wrong = [_differing(said, state) for state in self._known(damage)]
            if all(wrong):
                self._note(damage, min(wrong, key=len))
            await self._ask(store, _WRITES)
        finally:
            await store.close()

    def _known(self, damage: Damage) -> Sequence[Asked]:
        """What may be served: nothing but what lies there, or what lay there before the log was torn."""
        if damage.kind == "empty":
            return [dict.fromkeys(_READS)]
        if not damage.hot:
            return self._states[:1]
        return self._states if damage.kind.startswith("log") else self._states[-1:]

    def _note(self, damage: Damage, wrong: Sequence[str]) -> None:
        if damage.kind not in SILENT:
            raise Found("nothing is silently served wrong", "; ".join(wrong)[:2000])
        self.served[damage.kind] += 1

    async def _live(self, path: Path) -> list[Asked]:
        """Let the store at `path` be used, and copy what a process that is killed would leave. Its states, in order."""
        store = plain_store(f"sqlite:///{path}")
        await store.open()
        states = [await self._ask(store, _READS)]
        for person in PEOPLE:
            for kind in ("external", "waiting", "asking"):
                await store.request_cancel(_owner(person.name), task_id(person, kind))
                states.append(await self._ask(store, _READS))
        shutil.copyfile(path, path.with_name("hot.copy"))
        shutil.copyfile(log_of(path), path.with_name("hot.log"))
        await store.close()
        path.with_name("hot.copy").replace(path)
        return states

    async def _ask(self, store: SQLiteStore, verbs: Mapping[str, Verb]) -> Asked:
        return {name: await self._timed(name, _said(verb, store)) for name, verb in verbs.items()}

    async def _timed(self, name: str, verb: Awaitable[object]) -> object:
        began = monotonic()
        try:
            async with asyncio.timeout(self.within):
                said = await verb
        except TimeoutError:
            raise Found("a verb comes to its end", name) from None
        except PerdureError:
            raise
        except Exception as error:
            raise Found("a verb answers, or says that the store is away", f"{name}: {error!r}") from error
        if monotonic() - began > self.within:
            raise Found("a verb comes to its end", f"{name} after {monotonic() - began:.0f} s")
        return said


async def _make_foreign(path: Path) -> None:
    store = plain_store(f"sqlite:///{path}")
    await store.open()
    await store.create(_NEW)
    shutil.copyfile(log_of(path), path.with_name("foreign.log"))
    await store.close()


def _owner(name: str) -> Owner:
    person = next(each for each in PEOPLE if each.name == name)
    return Owner(person.tenant, f'[null,"fuzz","{name}"]')


# -- what is asked -----------------------------------------------------------------------------------------------------


def _reads() -> Mapping[str, Verb]:
    verbs: dict[str, Verb] = {}
    for person in PEOPLE:
        owner = _owner(person.name)
        verbs[f"{PAGE}{person.name}"] = lambda store, owner=owner: store.page(owner, None, _EVERYTHING)
        for kind in KINDS:
            id_ = task_id(person, kind)
            verbs[f"get {id_}"] = lambda store, owner=owner, id_=id_: store.get(owner, id_)
            verbs[f"questions of {id_}"] = lambda store, owner=owner, id_=id_: store.open_questions(owner, id_)
            verbs[f"inspect {id_}"] = lambda store, id_=id_: store.inspect(id_)
    everything = {task_id(person, kind): 0 for person in PEOPLE for kind in KINDS}
    verbs["changed"] = lambda store: store.changed(everything)
    verbs["sessions"] = lambda store: store.sessions()
    verbs["loads"] = lambda store: store.loads()
    verbs["backlog"] = lambda store: store.backlog(_EVERYTHING)
    verbs["backlog of acme"] = lambda store: store.backlog(_EVERYTHING, "acme")
    return verbs


_ME: Final = _owner(ADA.name)
_READS: Final = _reads()


async def _work(store: SQLiteStore) -> None:
    """Claim what there is, beside a task that is sound, and read what each has on record."""
    await store.create(replace(_NEW, id="tsk_" + "s" * 32))
    session = await store.open_session(1000, {})
    demands = [Demand(handler, _EVERYTHING) for handler in {load.handler for load in await store.loads()}]
    for claim in await store.claim(session.id, demands, _EVERYTHING):
        await _said(lambda store, claim=claim: store.journal(claim), store)
        await _said(lambda store, claim=claim: store.release(claim), store)
    await store.close_session(session.id)


def _settle(store: SQLiteStore, kind: str) -> Awaitable[object]:
    return store.settle(task_id(ADA, kind), "0", token(ADA, kind), EntryState.DONE, {})


_WRITES: Final[Mapping[str, Verb]] = {
    "recall": lambda store: store.recall(_ME, KEY, "another"),
    "settle": lambda store: _settle(store, "external"),
    "settle what is watched": lambda store: _settle(store, "watched"),
    "work": _work,
    "create": lambda store: store.create(_NEW),
    "cancel": lambda store: store.request_cancel(_ME, task_id(ADA, "waiting")),
    "answer": lambda store: store.answer(_ME, task_id(ADA, "asking"), {"plain": {"action": "decline"}}),
    "session": lambda store: store.open_session(1000, {}),
    "take over": lambda store: store.take_over(),
    "expire": lambda store: store.expire(_EVERYTHING),
    "purge": lambda store: store.purge(_EVERYTHING, linger_ms=0, tombstone_ms=1000),
}


async def _said(verb: Verb, store: SQLiteStore) -> object:
    try:
        return await verb(store)
    except PerdureError as error:
        return type(error)


def _differing(said: Asked, sound: Asked) -> list[str]:
    """What is neither as it was stored nor refused. `sound` None: nothing is there."""
    return [
        f"{name}: {value}, not {sound[name]}"
        for name, value in said.items()
        if value is not StoreUnavailable
        and value is not Unreadable
        and value != sound[name]
        and not _is_nothing(value, sound[name])
        and not (name.startswith(PAGE) and _is_a_part(value, sound[name]))
    ]


def _is_nothing(value: object, sound: object) -> bool:
    return sound is None and (value is TaskNotFound or not value or value == {"": 0} or isinstance(value, dict))


def _is_a_part(value: object, sound: object) -> bool:
    """Whether it is a list that lacks rows and has no others: one that can't be read is left out, and logged."""
    return isinstance(value, tuple) and isinstance(sound, tuple) and all(each in sound for each in cast("Any", value))


@contextmanager
def cellar(folder: Path, ground: Path) -> Generator[Cellar]:
    """A cellar in `folder`. What stores log meanwhile is known: that they could not be read."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner() as runner:
            yield Cellar(folder, ground, runner)
    finally:
        logging.disable(before)
