"""Installs the official suite and runs it; knows the command line, not what the results should be.

The two packages go into a folder of their own once and are run from there: `npx` would ask the registry again for each
of the eleven processes. A stamp written after the installation says that it is whole.
"""

import contextlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.catalog import NODE, SPEC_VERSION, SUITE, TASKS

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

    def run_core(self, url: str, results: Path) -> None:
        """Run every core scenario of the protocol version, in one process; rows go under `results`."""
        self._run(results, "core", ["--url", url, "--suite", "all", "--spec-version", SPEC_VERSION])

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
    stamp = folder / "installed"
    wanted = f"{NODE} {SUITE}"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _install(folder)
    modules = folder / "node_modules"
    suite = Suite(modules / ".bin/node", modules / "@modelcontextprotocol/conformance/dist/index.js")
    _require_node(suite.node)
    stamp.write_text(wanted)
    return suite


def _install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SuiteError("npm is needed to install the conformance suite: install Node.js")
    options = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund"]
    command = [npm, "install", "--prefix", folder, *options, NODE, SUITE]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SuiteError(f"npm could not install the conformance suite:\n{done.stdout}")


def _require_node(node: Path) -> None:
    """The binary comes with a script that runs at the installation; an npm that allows no scripts leaves it out."""
    major = NODE.rpartition("@")[2]
    try:
        version = subprocess.run([node, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    except OSError:
        version = ""
    if not version.startswith(f"v{major}."):
        found = version or "missing"
        raise SuiteError(f"npm installed {NODE}, but its binary is {found}: are install scripts forbidden?")
