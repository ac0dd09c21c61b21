"""Installs the official suite and runs it; knows the command line, not what the results should be."""

import contextlib
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests import npm
from tests.conformance.catalog import SPEC_VERSION, SUITE, TASKS

# Seconds. The core suite takes three, the slowest tasks scenario eight; past this bound something hangs.
TIMEOUT = 120.0

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

    def _run(self, results: Path, name: str, arguments: list[str]) -> None:
        """One process. How it ends is not looked at: the rows say more, and a missing one says it too."""
        results.mkdir(parents=True, exist_ok=True)
        command = [self.node, self.script, "server", *arguments, "-o", results]
        with (results / f"{name}.log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=TIMEOUT, check=False)


def installed(folder: Path) -> Suite:
    """The suite and its Node.js under `folder`, installed there if they are not yet."""
    try:
        modules = npm.installed(folder, SUITE)
    except npm.NpmError as error:
        raise SuiteError(str(error)) from error
    return Suite(npm.node_of(modules), modules / "@modelcontextprotocol/conformance/dist/index.js")
