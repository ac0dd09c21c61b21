"""`python -m fuzz`: one run and what it found. Exits 1 when that is anything."""

from __future__ import annotations

import argparse
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from . import rig
from .targets import TARGETS

__all__ = ["main"]


def settings(arguments: Sequence[str] | None) -> rig.Settings:
    default = rig.Settings()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Perdure fed with what nobody means well.")
    parser.add_argument("--minutes", type=float, default=default.seconds / 60, help="how long")
    parser.add_argument("--seed", type=int, help="which cases; drawn and printed by default")
    parser.add_argument("--target", action="append", choices=TARGETS, help="this one; may be given again. All without")
    parser.add_argument("--round", type=int, help="only this round of each target")
    parser.add_argument("--keep", type=Path, default=default.keep, help="where what is found goes")
    told = parser.parse_args(arguments)
    return rig.Settings(
        seconds=told.minutes * 60,
        seed=secrets.randbelow(1 << 32) if told.seed is None else told.seed,
        targets=told.target or (),
        round=told.round,
        keep=told.keep,
    )


def _as_interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    told = settings(arguments)
    # As Ctrl-C: the run is unwound, and with it the server that it started. Ctrl-C itself is said as well, since a
    # shell that starts a program in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_interrupt)
    print(f"again with: python -m fuzz --seed {told.seed}", file=sys.stderr, flush=True)
    try:
        report = rig.run(told, say=lambda text: print(f"FOUND {text}", flush=True))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(f"Fuzz: seed {report.seed}, {report.seconds:.0f} s")
    for name, cases in report.cases.items():
        print(f"{name:<10} {cases} cases in {report.rounds[name]} rounds")
    for kind, count in sorted(report.silent.items()):
        print(f"served as no store can tell from sound: {kind} {count}")
    if report.findings:
        print(f"oracle: {len(report.findings)} findings, kept in {told.keep}; a target that has found something ends")
        return 1
    print("oracle: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
