"""The table at the end of a storm: what there was, what was done to it, and whether it bore that."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from math import inf

from .evidence import Evidence
from .history import TERMINAL, Record, lost, records, words
from .oracle import RULES, Violation
from .plan import Inflicted

__all__ = ["Storm", "conclude"]

_SHOWN = 40
_LONGEST_SHOWN = 1500


@dataclass(frozen=True, slots=True)
class Storm:
    """What there is to report. `kinds`: of faults; `missing`: those that could not be inflicted, and why.

    `planned`: how many faults there were to be. `seconds`: how long it raged. `processes`, `starts`: how many at once,
    and in all. `refusals`, `poisonings`: how many of them said that they can't start as things are, and how many were
    killed by a tool.
    """

    store: str
    seed: int
    kind: str
    seconds: float
    planned: int
    inflicted: Sequence[Inflicted]
    kinds: Sequence[str]
    missing: Mapping[str, str]
    processes: int
    starts: int
    refusals: int
    poisonings: int
    evidence: Evidence
    violations: Sequence[Violation]


def conclude(storm: Storm) -> int:
    """Print the table and the verdict; the exit status."""
    print(f"Chaos: seed {storm.seed}, {storm.seconds:.0f} s, {storm.processes} processes, store on {storm.kind}")
    print(f"{_machine()}\n")
    lines = [*_tasks(storm.evidence), ("", ""), *_faults(storm), ("", ""), *_processes(storm)]
    width = max(len(name) for name, _ in lines)
    for name, figure in lines:
        print(f"{name:<{width}}  {figure}".rstrip())
    print()
    for violation in storm.violations[:_SHOWN]:
        print(f"VIOLATION {_shortened(str(violation))}")
    if len(storm.violations) > _SHOWN:
        print(f"… and {len(storm.violations) - _SHOWN} more")
    if storm.violations:
        broken = Counter(violation.rule for violation in storm.violations)
        again = f"again with --store {storm.store} --seed {storm.seed}"
        print(f"oracle: {len(storm.violations)} violations of {len(broken)} rules; {again}")
    else:
        print(f"oracle: nothing found, by {len(RULES)} rules")
    return 1 if storm.violations else 0


Line = tuple[str, str]


def _tasks(evidence: Evidence) -> Iterator[Line]:
    known = records(evidence.exchanges)
    ends = Counter(record.final.task["status"] for record in known.values() if record.final is not None)
    kinds = Counter(record.kind for record in known.values())
    yield "tasks created", f"{len(known)}  ({_counts(kinds)})"
    for status in sorted(TERMINAL):
        yield f"  {status}", str(ends[status])
    unfinished = len(known) - ends.total()
    yield "  unfinished", str(unfinished)
    yield "calls that brought no handle", str(len(lost(evidence.exchanges)))
    answered = [answer for record in known.values() for answer in record.answers]
    yield "answers acknowledged", f"{sum(answer.received < inf for answer in answered)} of {len(answered)} sent"
    said = [word for each in words(evidence.exchanges).values() for word in each]
    yield "words of other systems accepted", f"{sum(word.accepted for word in said)} of {len(said)} said"
    keyed = {exchange.key for exchange in evidence.exchanges if exchange.key is not None}
    calls = sum(exchange.key is not None for exchange in evidence.exchanges)
    yield "calls with a key", f"{calls}, with {len(keyed)} keys"
    yield "requests", _requests(evidence)
    yield "runs of tools", str(sum(effect.event == "start" for effect in evidence.effects))
    yield "takeovers seen", str(_takeovers(evidence))
    yield "slowest task", _slowest(known.values())


def _requests(evidence: Evidence) -> str:
    unanswered = sum(exchange.received == inf for exchange in evidence.exchanges)
    refused = sum(exchange.error is not None for exchange in evidence.exchanges)
    return f"{len(evidence.exchanges)}, of them {unanswered} unanswered, {refused} refused"


def _takeovers(evidence: Evidence) -> int:
    """Deaths of workers, as tools saw them: each takes an attempt away from each task that was running there."""
    attempts: dict[str, int] = {}
    for effect in evidence.effects:
        attempts[effect.task] = max(effect.attempt, attempts.get(effect.task, 1))
    return sum(attempt - 1 for attempt in attempts.values())


def _slowest(known: Iterable[Record]) -> str:
    ended = [record for record in known if record.final is not None]
    if not ended:
        return "none"
    slowest = max(ended, key=lambda record: record.seconds)
    return f"{slowest.seconds:.1f} s, {slowest.label}"


def _faults(storm: Storm) -> Iterator[Line]:
    felt = Counter(one.fault.kind for one in storm.inflicted if one.felt)
    vain = Counter(one.fault.kind for one in storm.inflicted if not one.felt)
    yield "faults", f"{felt.total()} of {storm.planned} planned"
    for kind in storm.kinds:
        if kind in storm.missing:
            yield f"  {kind}", f"0  LEFT OUT: {storm.missing[kind]}"
        else:
            yield f"  {kind}", f"{felt[kind]}{f'  (and {vain[kind]} that nobody felt)' if vain[kind] else ''}"


def _processes(storm: Storm) -> Iterator[Line]:
    yield "processes started", str(storm.starts)
    yield "  could not start as things were", str(storm.refusals)
    yield "  killed by a tool", str(storm.poisonings)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]} …"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, perdure {version('perdure')}"
    )
