"""`python -m chaos`: one storm and its verdict. Exits 1 when the oracle has found something."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from . import report, rig
from .stores import GROUNDS


def settings(arguments: Sequence[str] | None) -> rig.Settings:
    default = rig.Settings()
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Perdure under fire, and an oracle.")
    parser.add_argument("--store", choices=GROUNDS, default=default.store, help="which one the tasks are in")
    parser.add_argument("--minutes", type=float, default=default.seconds / 60, help="how long the faults go on")
    parser.add_argument("--faults", type=int, default=default.faults, help="how many there are")
    parser.add_argument("--servers", type=int, default=default.servers, help="server processes, each with a worker")
    parser.add_argument("--workers", type=int, default=default.workers, help="worker processes, without a server")
    parser.add_argument("--rate", type=float, default=default.rate, help="tasks created a second")
    parser.add_argument("--lease", type=float, default=default.lease, help="seconds")
    parser.add_argument("--seed", type=int, help="which faults and which tasks; drawn and printed by default")
    parser.add_argument(
        "--mount", action=argparse.BooleanOptionalAction, default=True, help="mount a disk if allowed (SQLite)"
    )
    parser.add_argument("--folder", type=Path, help="where the scratch files go")
    parser.add_argument("--keep", type=Path, default=default.keep, help="where the evidence goes if rules are broken")
    told = parser.parse_args(arguments)
    return rig.Settings(
        store=told.store,
        seconds=told.minutes * 60,
        faults=told.faults,
        servers=told.servers,
        workers=told.workers,
        rate=told.rate,
        lease=told.lease,
        seed=secrets.randbelow(1 << 32) if told.seed is None else told.seed,
        mount=told.mount,
        folder=told.folder,
        keep=told.keep,
    )


def _as_interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    told = settings(arguments)
    # As Ctrl-C: the storm is unwound, and with it everything that it started. Ctrl-C itself is said as well, since a
    # shell that starts a program in the background has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        print(f"again with: python -m chaos --store {told.store} --seed {told.seed}", file=sys.stderr, flush=True)
        return report.conclude(rig.run(told))
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
