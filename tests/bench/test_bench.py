"""The benchmarks still run: each once, as a user runs it, with counts too small for its figures to mean anything."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench import report
from tests import copies

TIMEOUT = 170.0
pytestmark = pytest.mark.timeout(180)  # whole programs with servers of their own, on a machine that others use

STORE = "--tasks 200 --turns 1 --claims 5 --finished 500"
HTTP = "--turns 1 --seconds 0.1 --polled 10 --connections 4"
PARKING = "--turns 1 --tasks 30 --warm-up 20 --connections 4"
TIMERS = "--sleepers 20 --due 5 --over 0.5 --warm-up 5 --head-start 4"
STEPS = "--turns 1 --alone 20 --together 3"
POSTGRES = f"--store postgresql {STORE} 700 --held 1 --rate 50"
WAKEUPS = "--turns 1 --answers 20 --rate 40 --cancels 4 --alone 3"
DRAIN = "--turns 1 --tasks 100 --workers 2"
LISTEN = (
    "--turns 1 --tasks 4 --changes 12 --rate 20 --polled-every 0.2 --connects 80 "
    "--streams 40 --crowd-changes 10 --burst-streams 20 --burst-rate 100 --burst-seconds 0.3"
)
HANDLES = "--turns 1 --handles 20 --settle 1 --seconds 0.5"
GATEWAY = "--turns 1 --seconds 0.1 --polled 10 --connections 4 --streams 20 --memory-turns 1"
PURGE = "--tasks 300 --live 5 --rate 40 --seconds 1"
SOAK = "--minutes 0.05 --every 1 --asked-after 1 --driven 0.5"
TAKEOVER = "--turns 1 --tasks 8 --workers 2 --lease 2s --in-sight-only"


def run(name: str, arguments: str, folder: Path) -> str:
    """The table that a benchmark prints."""
    command = [sys.executable, "-m", f"bench.{name}", "--folder", str(folder), *arguments.split()]
    ended = asyncio.run(copies.ended(command, within=TIMEOUT))
    assert ended.code == 0, ended.errors
    return ended.output


@pytest.mark.parametrize(
    ("name", "arguments", "figures"),
    [
        ("store", STORE, ["fsync", "create, group commit", "claim and complete, group commit", "claim, 500 finished"]),
        ("http", HTTP, ["bare SDK server", "create, no worker", "tasks/get, completed", "tasks/get, working"]),
        ("parking", PARKING, ["resident with 30 waiting", "growth", "store's files"]),
        ("timers", TIMERS, ["late, p99", "resident with 20 asleep", "growth"]),
        ("steps", STEPS, ["fsync after 4 KiB, p50", "step, one task, p99", "steps of 64 tasks at once"]),
        ("purge", PURGE, ["tasks/get before", "purge", "p99 during, times before"]),
        (
            "handles",
            HANDLES,
            ["listening, processor", "polling, processor", "streams opened in all", "open at once"],
        ),
        ("gateway", GATEWAY, ["tasks/get, 1 connection, p50", "create, 4 connections", "20 streams, each relayed"]),
        ("soak", SOAK, ["full load", "store on the disk", "open handles", "tasks/get, p99"]),
        ("takeover", TAKEOVER, ["lease 2s, process seen to be gone", "tasks of the killed worker"]),
    ],
)
def test_a_benchmark_prints_its_figures(name: str, arguments: str, figures: Sequence[str], tmp_path: Path) -> None:
    printed = run(name, arguments, tmp_path)
    assert "SQLite" in printed
    for figure in figures:
        assert figure in printed
    assert not list(tmp_path.iterdir()), "scratch files were left behind"


@pytest.mark.parametrize(
    ("name", "arguments", "figures"),
    [
        ("store", POSTGRES, ["create, group commit", "processor", "claim, 700 finished", "claim, a snapshot held"]),
        ("wakeups", WAKEUPS, ["answer on A to tool on B, 40/s, p99", "cancel on A to tool on B", "without LISTEN"]),
        (
            "listen",
            LISTEN,
            ["replica, PostgreSQL, p50", "above the SDK's own", "streams cut off", "handles left over"],
        ),
        ("purge", f"--store postgresql {PURGE}", ["tasks/get during the purge", "p99 during, times before"]),
        ("drain", DRAIN, ["2 workers to one", "done twice, in all turns  0", "not done, in all turns    0"]),
    ],
)
def test_a_benchmark_of_postgresql_prints_its_figures(name: str, arguments: str, figures: Sequence[str]) -> None:
    # Not in pytest's folder: the server has a user of its own, who can't get there.
    with TemporaryDirectory(prefix="perdure-bench-") as folder:
        Path(folder).chmod(0o711)
        printed = run(name, arguments, Path(folder))
        assert "PostgreSQL" in printed or "postgresql" in printed
        for figure in figures:
            assert figure in printed
        assert not list(Path(folder).iterdir()), "scratch files were left behind"


def test_a_missed_target_is_named_and_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    rate = "{:,.0f}/s".format
    lines = [report.at_least("fast", [4, 5, 6], 5, rate), report.at_least("slow", [3, 4, 9], 5, rate)]
    assert report.conclude("Figures", lines, check=True) == 1
    printed = capsys.readouterr().out
    assert "4/s  (3/s to 9/s)" in printed
    assert "missed: slow" in printed
    assert report.conclude("Figures", lines, check=False) == 0


def test_a_table_whose_targets_are_met_passes_the_check() -> None:
    lines = [report.at_most("small", [1.4], 1.5, "{:.1f}".format), report.measured("free", "any")]
    assert report.conclude("Figures", lines, check=True) == 0
