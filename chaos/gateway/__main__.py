"""`python -m chaos.gateway`: one storm and its verdict. Exits 1 when the oracle has found something."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from . import rig


def settings(arguments: Sequence[str] | None) -> rig.Settings:
    default = rig.Settings()
    parser = argparse.ArgumentParser(prog="python -m chaos.gateway", description="Gateways under fire, and an oracle.")
    parser.add_argument("--minutes", type=float, default=default.seconds / 60, help="how long the faults go on")
    parser.add_argument("--faults", type=int, help="how many there are; as many as a minute of the default by default")
    parser.add_argument("--rate", type=float, default=default.rate, help="calls a second")
    parser.add_argument("--seed", type=int, help="which faults and which calls; drawn and printed by default")
    parser.add_argument("--folder", type=Path, help="where the scratch files go")
    parser.add_argument("--keep", type=Path, default=default.keep, help="where the evidence goes if rules are broken")
    told = parser.parse_args(arguments)
    seconds = told.minutes * 60
    return rig.Settings(
        seconds=seconds,
        faults=told.faults or max(1, round(default.faults * seconds / default.seconds)),
        rate=told.rate,
        seed=secrets.randbelow(1 << 32) if told.seed is None else told.seed,
        folder=told.folder,
        keep=told.keep,
    )


def _as_interrupt(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)


def main(arguments: Sequence[str] | None = None) -> int:
    told = settings(arguments)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _as_interrupt)  # the storm is unwound, and with it everything that it started
    try:
        print(f"again with: python -m chaos.gateway --seed {told.seed}", file=sys.stderr, flush=True)
        return rig.run(told)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
