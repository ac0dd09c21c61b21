"""Installs the official suite and runs it; knows the command line, not what the results should be."""

import contextlib
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import npm
from tests.conformance.catalog import SPEC_VERSION, SUITE, TASKS

# Seconds. The core suite takes three, the slowest tasks scenario eight; past this bound something hangs.
TIMEOUT = 120.0

# All scenarios of clients run at once, each in a process that needs a second of a processor to start.
CLIENT_TIMEOUT_MS = 60_000

# A tasks scenario spends its time waiting for tasks, so more of them run at once than there are cores.
AT_ONCE = 4


class SuiteError(Exception):
    """The suite could not be installed or has no server to run against; the message is for the person who ran it."""


@dataclass(frozen=True, slots=True)
class Suite:
    """An installed suite."""

    node: Path
    script: Path

    def run_core(self, url: str, results: Path, version: str = SPEC_VERSION) -> None:
        """Run every core scenario of the protocol's `version`, in one process; rows go under `results`."""
        self._run(results, "core", ["--url", url, "--suite", "all", "--spec-version", version])

    def run_tasks(self, url: str, results: Path) -> None:
        """Run every tasks scenario, each in a process of its own.

        Without `--spec-version`: the scenarios belong to an extension and to no version of the protocol, so with one
        they are all skipped, and exit 0.
        """

        def run(scenario: str) -> None:
            self._run(results, scenario, ["--url", url, "--scenario", scenario])

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(run, TASKS.successes):
                pass

    def run_clients(self, command: Sequence[str | Path], results: Path, version: str = SPEC_VERSION) -> None:
        """Run every scenario of clients: the suite serves, and runs `command` with a URL and the scenario's name."""
        run = ["--command", " ".join(map(str, command)), "--suite", "all", "--spec-version", version]
        self._run(results, "clients", [*run, "--timeout", f"{CLIENT_TIMEOUT_MS}"], role="client")

    def _run(self, results: Path, name: str, arguments: list[str], role: str = "server") -> None:
        """One process. How it ends is not looked at: the rows say more, and a missing one says it too."""
        results.mkdir(parents=True, exist_ok=True)
        command = [self.node, self.script, role, *arguments, "-o", results]
        with (results / f"{name}.log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)


def installed(folder: Path) -> Suite:
    """The suite and its Node.js under `folder`, installed there if they are not yet."""
    try:
        modules = npm.installed(folder, SUITE)
    except npm.NpmError as error:
        raise SuiteError(str(error)) from error
    return Suite(npm.node_of(modules), modules / "@modelcontextprotocol/conformance/dist/index.js")
