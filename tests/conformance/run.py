"""Runs the official conformance suite on the fixture server and our client; says whether every row is as it must be.

    python -m tests.conformance.run              # what `make conformance` does
    python -m tests.conformance.run --baseline   # without tasks: a bare SDK server, and the SDK's client as it is

Exits 0 if and only if all checks of the catalogue succeed, no scenario is missing, and no row was written that the
catalogue does not accept. The rows, the suite's output and the server's log stay in
`build/conformance-results`.
"""

import argparse
import contextlib
import http.client
import importlib.metadata
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path

from perdure.testing.postgresql.programs import free_port
from tests import pypi
from tests.conformance.catalog import (
    CLIENTS,
    CORE,
    HANDSHAKE,
    HANDSHAKE_CLIENTS,
    HANDSHAKE_VERSION,
    SPEC_VERSION,
    TASKS,
    Expectation,
)
from tests.conformance.reading import Outcome, Verdict, judge, read_rows
from tests.conformance.suite import Suite, SuiteError, installed

ROOT = Path(__file__).resolve().parents[2]
INSTALLATION = ROOT / "build" / "conformance"
RESULTS = ROOT / "build" / "conformance-results"
EXTENDED = Path(__file__).with_name("client.py")
CLIENT_REPORTS = {"clients": CLIENTS, "handshake-clients": HANDSHAKE_CLIENTS}
START_TIMEOUT = 30.0
STOP_TIMEOUT = 15.0


# The server -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(script: str, *arguments: str) -> Generator[str]:
    """Run an example server on a free port of the loopback interface; the value is its URL."""
    with _running(sys.executable, str(ROOT / "examples" / script), *arguments) as url:
        yield url


@contextlib.contextmanager
def fronted(url: str, folder: Path) -> Generator[str]:
    """Run `perdure gateway` before the server at `url`, exposing its names as they are; the value is its own URL."""
    config = folder / "gateway.toml"
    store = f"sqlite:///{folder / 'routes.db'}"
    config.write_text(f'[gateway]\nstore = "{store}"\n\n[backends.fixture]\nurl = "{url}"\nprefix = ""\n')
    with _running(str(Path(sys.executable).with_name("perdure")), "gateway", str(config)) as front:
        yield front


@contextlib.contextmanager
def _running(*program: str) -> Generator[str]:
    """Run a program that serves on the port that it is told; the value is its URL."""
    port = free_port()
    command = [*program, "--port", str(port)]
    with (RESULTS / "server.log").open("ab") as log:
        server = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait_until_it_answers(server, port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            _stop(server)


def _wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not _answers(port):
        if server.poll() is not None:
            log = (RESULTS / "server.log").read_text(errors="replace")
            raise SuiteError(f"the server exited with {server.returncode} before it answered:\n{log}")
        if time.monotonic() > deadline:
            raise SuiteError(f"the server did not answer within {START_TIMEOUT:.0f} s")
        time.sleep(0.05)


def _answers(port: int) -> bool:
    """Whether `server/discover` is answered: an open port is not yet a server that is ready."""
    meta: dict[str, object] = {
        "io.modelcontextprotocol/protocolVersion": SPEC_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body: dict[str, object] = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": SPEC_VERSION,
        "Mcp-Method": "server/discover",
    }
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


# The two ways to run --------------------------------------------------------------------------------------------------


def run_all(suite: Suite) -> bool:
    """The core suite of both eras and the tasks scenarios, on the fixture server with a fresh store.

    The present era once more through a gateway, which has to come to the same; the handshake era once more beside the
    adapter for its tasks, which is off unless asked for.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        store = ("--store", f"sqlite:///{Path(folder) / 'tasks.db'}")
        # One after the other: some core scenarios wait half a second for a frame, and the server may have to share its
        # core with the suite.
        with serving("conformance_server.py", *store) as url:
            suite.run_core(url, RESULTS / "core")
            suite.run_core(url, RESULTS / "handshake", HANDSHAKE_VERSION)
            suite.run_tasks(url, RESULTS / "tasks")
            with fronted(url, Path(folder)) as front:
                suite.run_core(front, RESULTS / "gateway-core")
                suite.run_tasks(front, RESULTS / "gateway-tasks")
        with serving("conformance_server.py", *store, "--legacy") as url:
            suite.run_core(url, RESULTS / "legacy", HANDSHAKE_VERSION)
    run_clients(suite, sys.executable, EXTENDED, sdk_client())
    servers = {"core": CORE, "handshake": HANDSHAKE, "legacy": HANDSHAKE, "tasks": TASKS}
    servers |= {"gateway-core": CORE, "gateway-tasks": TASKS}
    return report_all(servers | CLIENT_REPORTS)


def run_baseline(suite: Suite) -> bool:
    """The core suite on a bare SDK server, and the SDK's client: where the numbers of the catalogue come from."""
    with serving("conformance_core.py") as url:
        suite.run_core(url, RESULTS / "core")
        suite.run_core(url, RESULTS / "handshake", HANDSHAKE_VERSION)
    run_clients(suite, sys.executable, sdk_client())
    return report_all({"core": CORE, "handshake": HANDSHAKE} | CLIENT_REPORTS)


def run_clients(suite: Suite, *command: str | Path) -> None:
    """The scenarios of clients, of both eras."""
    suite.run_clients(command, RESULTS / "clients")
    suite.run_clients(command, RESULTS / "handshake-clients", HANDSHAKE_VERSION)


def sdk_client() -> Path:
    """The SDK's own conformance client, of the version that we run on: it comes with the SDK's sources only."""
    version = importlib.metadata.version("mcp")
    return pypi.sources(ROOT / "build" / "sdk", "mcp", version) / ".github/actions/conformance/client.py"


# The report -----------------------------------------------------------------------------------------------------------


def report_all(expected: Mapping[str, Expectation]) -> bool:
    verdicts = [report(name, expectation) for name, expectation in expected.items()]
    return all(verdicts)


def report(name: str, expectation: Expectation) -> bool:
    verdict = judge(read_rows(RESULTS / name), expectation)
    print("\n".join(table(name, verdict, expectation)))
    return verdict.ok


def table(name: str, verdict: Verdict, expectation: Expectation) -> list[str]:
    """One line per scenario, each followed by the rows that are no success, and a line with the sum."""
    width = max(len(outcome.scenario) for outcome in verdict.outcomes)
    lines = [line for outcome in verdict.outcomes for line in _scenario_lines(outcome, width)]
    failed = sum(bool(outcome.problem) for outcome in verdict.outcomes)
    total = f"{name}: {verdict.succeeded} of {expectation.total} checks succeeded, "
    return [*lines, total + (f"FAILED in {failed} scenarios" if failed else "no failures"), ""]


def _scenario_lines(outcome: Outcome, width: int) -> Iterator[str]:
    mark = f"FAILED: {outcome.problem}" if outcome.problem else "ok"
    yield f"{outcome.scenario:<{width}}  {outcome.succeeded:>2} of {outcome.expected:>2}  {mark}"
    for row in outcome.refused:
        yield f"    {row.status} {row.check}: {row.message}"
    for row in outcome.accepted:
        yield f"    {row.status} {row.check}: accepted, see tests/conformance/catalog.py"


def _exit(signum: int, _frame: object) -> None:
    sys.exit(128 + signum)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the official MCP conformance suite.")
    parser.add_argument("--baseline", action="store_true", help="without tasks: a bare SDK server and client")
    options = parser.parse_args(arguments)
    # Being told to end has to stop the server too.
    signal.signal(signal.SIGTERM, _exit)
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    try:
        suite = installed(INSTALLATION)
        ok = run_baseline(suite) if options.baseline else run_all(suite)
    except SuiteError as error:
        print(f"conformance: {error}", file=sys.stderr)
        ok = False
    if not ok:
        print(f"conformance: FAILED, the rows and logs are in {RESULTS.relative_to(ROOT)}", file=sys.stderr)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
