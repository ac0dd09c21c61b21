"""The table at the end of a benchmark: what was measured, on which machine, and whether the targets were met."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median, quantiles

__all__ = ["Form", "Line", "arguments", "at_least", "at_most", "conclude", "latencies", "measured", "say", "spread"]


Form = Callable[[float], str]
"""How a figure is written."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure. `met` is None where there is no target."""

    name: str
    figure: str
    target: str = ""
    met: bool | None = None


def measured(name: str, figure: str) -> Line:
    """A figure that nothing depends on."""
    return Line(name, figure)


def at_least(name: str, values: Sequence[float], target: float, form: Form) -> Line:
    """A figure whose median must not fall below `target`."""
    return Line(name, spread(values, form), f">= {form(target)}", median(values) >= target)


def at_most(name: str, values: Sequence[float], target: float, form: Form) -> Line:
    """A figure whose median must not exceed `target`."""
    return Line(name, spread(values, form), f"<= {form(target)}", median(values) <= target)


def spread(values: Sequence[float], form: Form) -> str:
    """The median with the smallest and the largest, which tell how quiet the machine was."""
    if len(values) == 1:
        return form(values[0])
    return f"{form(median(values))}  ({form(min(values))} to {form(max(values))})"


def latencies(seconds: Sequence[float]) -> str:
    """Half and 99 of 100 were faster than that."""
    if len(seconds) < 2:
        return "too few"
    cuts = quantiles(seconds, n=100)
    return f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--folder", help="where the scratch files go; the disk under it is what is measured")
    return parser


def say(progress: str) -> None:
    """Tell whoever waits; the table alone goes to standard output."""
    print(progress, file=sys.stderr, flush=True)


def conclude(title: str, lines: Iterable[Line], *, check: bool) -> int:
    """Print the table; the exit status."""
    lines = list(lines)
    print(f"{title}\n{_machine()}\n")
    names, figures = max(len(line.name) for line in lines), max(len(line.figure) for line in lines)
    for line in lines:
        verdict = {None: "", True: "met", False: "MISSED"}[line.met]
        print(f"{line.name:<{names}}  {line.figure:<{figures}}  {line.target:<12} {verdict}".rstrip())
    missed = [line.name for line in lines if line.met is False]
    print(f"\n{'missed: ' + ', '.join(missed) if missed else 'all targets met'}")
    return 1 if check and missed else 0


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, mcp {version('mcp')}, load {os.getloadavg()[0]:.1f}"
    )
