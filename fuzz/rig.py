"""A run: rounds of all targets in turn until the time is over, each with a seed of its own that the run's decides.

So the same seed makes the same rounds in the same order, and one of them can be made again alone.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Self

from . import ground as grounds
from .cellar import Cellar, cellar
from .oracle import Found
from .scene import Scene, scene
from .search import Failure, search
from .server import APP, NotInOrder
from .targets import TARGETS, Target
from .targets.base import Needs

__all__ = ["Finding", "Report", "Settings", "run"]


@dataclass(frozen=True, slots=True)
class Settings:
    """`seconds`: how long. `targets`: which; all of them if it names none. `round`: this one alone.

    `count`: cases in a round, if not as many as the target says. `keep`: where findings go. `app`: the server.
    """

    seconds: float = 600.0
    seed: int = 0
    targets: Sequence[str] = ()
    round: int | None = None
    count: int | None = None
    keep: Path = Path("build/fuzz")
    app: str = APP


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found in a round of a target. `sent`: the last bytes to the server; empty for a file."""

    target: str
    round: int
    failure: Failure
    sent: bytes

    def __str__(self) -> str:
        return f"{self.target}, round {self.round}: {self.failure.found}\n  case: {self.failure.case!r}"


@dataclass(slots=True)
class Report:
    """What a run came to. `cases`: how many, by target; `silent`: what no store could have noticed, by damage."""

    seed: int
    seconds: float = 0.0
    cases: Counter[str] = field(default_factory=Counter[str])
    rounds: Counter[str] = field(default_factory=Counter[str])
    silent: Counter[str] = field(default_factory=Counter[str])
    findings: list[Finding] = field(default_factory=list[Finding])

    def found(self, target: Target) -> bool:
        """Whether there is something of that target's."""
        return any(each.target == target.name for each in self.findings)


def run(settings: Settings, say: Callable[[str], None] = lambda _: None, ground: Path | None = None) -> Report:
    """Fuzz. `say` is told of each finding at once. `ground`: the store to do it on; made if there is none yet."""
    report, began = Report(settings.seed), monotonic()
    until = began + settings.seconds
    targets = [TARGETS[name] for name in settings.targets or TARGETS]
    with TemporaryDirectory(prefix="fuzz-") as folder:
        store = ground or grounds.make(Path(folder))
        numbers = count() if settings.round is None else (settings.round,)
        for number in takewhile(lambda _: monotonic() < until, numbers):
            with _Subjects(Path(folder), store, settings.app, report) as subjects:
                for target in takewhile(lambda _: monotonic() < until, targets):
                    if report.found(target):  # it would find the same again, and not get past it
                        continue
                    if target.fresh:
                        subjects.forget(target.needs)
                    for finding in _round(settings, report, target, number, subjects.of(target.needs), until):
                        report.findings.append(finding)
                        _keep(settings, finding)
                        say(str(finding))
                        subjects.forget(target.needs)
            if all(map(report.found, targets)):
                break
    report.seconds = monotonic() - began
    return report


def _round(
    settings: Settings, report: Report, target: Target, number: int, subject: Subject, until: float
) -> Iterator[Finding]:
    seed = zlib.crc32(f"{settings.seed}:{target.name}:{number}".encode())
    cases = settings.count or target.count
    sent = b""

    def check(case: Any) -> None:
        nonlocal sent
        try:
            target.check(subject, case)
        except Found:
            sent = _sent_to(subject)  # of the case that is kept: a search that is cut off ends with any other
            raise

    tried, failure = search(target.cases, check, seed=seed, count=cases, until=until)
    report.cases[target.name] += tried
    report.rounds[target.name] += 1
    if failure is None:
        sent, failure = _sent_to(subject), _in_the_end(subject)
    if failure is not None:
        yield Finding(target.name, number, failure, sent)


def _sent_to(subject: Subject) -> bytes:
    return subject.sent if isinstance(subject, Scene) else b""


def _in_the_end(subject: Subject) -> Failure | None:
    try:
        if isinstance(subject, Scene):
            subject.judge_memory()
    except Found as found:
        return Failure("the whole round", found)
    return None


Subject = Scene | Cellar


class _Subjects:
    """What the cases of one round are tried on: made when it is needed, and anew once something was found with it."""

    def __init__(self, folder: Path, store: Path, app: str, report: Report) -> None:
        self._folder = folder
        self._store = store
        self._app = app
        self._report = report
        self._stacks: dict[Needs, ExitStack] = {}
        self._made: dict[Needs, Subject] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for needs in tuple(self._stacks):
            self.forget(needs)

    def of(self, needs: Needs) -> Subject:
        """What is needed."""
        if needs not in self._made:
            stack = self._stacks[needs] = ExitStack()
            folder = Path(stack.enter_context(TemporaryDirectory(dir=self._folder)))
            if needs is Needs.FILE:
                self._made[needs] = stack.enter_context(cellar(folder, self._store))
            else:
                quiet = needs is Needs.QUIET
                self._made[needs] = stack.enter_context(scene(folder, self._store, strict=quiet, app=self._app))
        return self._made[needs]

    def forget(self, needs: Needs) -> None:
        """Let go of it."""
        subject = self._made.pop(needs, None)
        if isinstance(subject, Cellar):
            self._report.silent += subject.served
        stack = self._stacks.pop(needs, ExitStack())
        # One with which something was found may not end in order either, which is no second finding.
        with suppress(NotInOrder) if self._report.findings else nullcontext():
            stack.close()


def _keep(settings: Settings, finding: Finding) -> None:
    settings.keep.mkdir(parents=True, exist_ok=True)
    kept: Mapping[str, Any] = {
        "again": f"python -m fuzz --seed {settings.seed} --target {finding.target} --round {finding.round}",
        "rule": finding.failure.found.rule,
        "detail": finding.failure.found.detail,
        "case": repr(finding.failure.case),
        "sent": finding.sent.decode("latin-1"),
    }
    path = settings.keep / f"{finding.target}-{settings.seed}-{finding.round}.json"
    path.write_text(json.dumps(kept, indent=2) + "\n")
