"""`perdure demo`: a real server process, a real client, and a SIGKILL between the handle and the first poll.

The client side is what the contract says of one: capabilities and routing headers on each request, the handle kept
before anything else, polls no faster than `pollIntervalMs`, and after the crash the task is polled, never called again.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp.shared.inbound import encode_header_value

from perdure.wire.models import EXTENSION, METHODS

from . import ports

__all__ = ["main"]

_VERSION: Final = "2026-07-28"
_START_SECONDS: Final = 30.0
_TASK_SECONDS: Final = 45.0
_HEAD_START: Final = 1.0
"""Seconds for the worker to be in the middle of the task when it is killed; else it might not even have begun."""

Json = dict[str, Any]


def main() -> int:
    """Run the demo; the exit code says whether the task survived."""
    folder = Path(tempfile.mkdtemp(prefix="perdure-demo-"))
    store = folder / "tasks.db"
    with (
        # Two servers are to have it, one after the other, and other demos run beside this one.
        ports.reserved("127.0.0.1") as port,
        # Through no proxy that the environment names: none of them leads back to this machine.
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as http,
    ):
        client = _Client(http)
        with _server(port, store) as process:
            _show(0, client.call(0, "server/discover", {}))
            handle = client.call(1, "tools/call", {"name": "generate_report", "arguments": {"size": "large"}})
            _show(1, handle)
            time.sleep(_HEAD_START)
            process.kill()
            process.wait()
        killed = time.monotonic()
        with _server(port, store):
            back = time.monotonic() - killed
            asked, final = _finish(client, handle)
    _account(handle, back, asked, final)
    print(f"\nThe store: {store}\nThe server's log: {store.with_name('server.log')}")
    return 0 if final.get("result", {}).get("structuredContent") == {"size": "large", "approved": True} else 1


def _finish(client: _Client, handle: Json) -> tuple[Json, Json]:
    """Poll the task, answer its question, and poll it to its end: the task as it asked, and as it ended."""
    task_id = handle["taskId"]
    _show(2, client.call(2, "tasks/get", {"taskId": task_id}))
    asked = client.poll(3, task_id, until="input_required")
    _show(3, asked)
    approval = {"action": "accept", "content": {"approved": True}}
    _show(4, client.call(4, "tasks/update", {"taskId": task_id, "inputResponses": {"approve_outline": approval}}))
    final = client.poll(5, task_id, until="completed")
    _show(5, final)
    return asked, final


class _Client:
    """The least that a conforming client does."""

    def __init__(self, http: httpx2.Client) -> None:
        self._http = http

    def call(self, id_: int | str, method: str, params: Json) -> Json:
        """One request; its result."""
        capabilities: Json = {"elicitation": {}, "extensions": {EXTENSION: {}}}
        meta: Json = {
            "io.modelcontextprotocol/protocolVersion": _VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "perdure-demo-client", "version": "1.0"},
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
        body: Json = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": meta}}
        answer = self._http.post("/mcp", json=body, headers=_headers(method, params)).json()
        if "result" not in answer:
            raise SystemExit(f"perdure demo: {method} answered {answer}")
        return answer["result"]

    def poll(self, id_: int, task_id: str, *, until: str) -> Json:
        """Poll at the task's own interval until its status is `until`, or terminal."""
        give_up = time.monotonic() + _TASK_SECONDS
        task: Json = {"pollIntervalMs": 3000}
        for again in itertools.count():
            time.sleep(task["pollIntervalMs"] / 1000)
            task = self.call(f"{id_}.{again}" if again else id_, "tasks/get", {"taskId": task_id})
            if task["status"] in {until, "completed", "failed", "cancelled"}:
                break
            if time.monotonic() > give_up:
                raise SystemExit(f"perdure demo: the task is still {task['status']} after {_TASK_SECONDS:.0f} s")
        return task


def _headers(method: str, params: Json) -> dict[str, str]:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": _VERSION,
        "Mcp-Method": method,
    }
    name = params.get("taskId") if method in METHODS else params.get("name")
    return headers if name is None else {**headers, "Mcp-Name": encode_header_value(name)}


def _show(id_: int, result: Json) -> None:
    print(f"id={id_} resultType={result['resultType']} status={result.get('status', 'ack')}", flush=True)


@contextlib.contextmanager
def _server(port: int, store: Path) -> Generator[subprocess.Popen[bytes]]:
    """A server process that answers; stopped at the end, if it still lives."""
    command = [sys.executable, "-m", "perdure.ops.demo_server", "--port", str(port), "--store", f"sqlite:///{store}"]
    log = store.with_name("server.log")
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:  # noqa: S603
        try:
            _wait_until_it_listens(process, port, log)
            yield process
        finally:
            process.terminate()
            process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    give_up = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if process.poll() is not None or time.monotonic() > give_up:
            raise SystemExit(f"perdure demo: the server did not start; it said:\n{log.read_text('utf-8', 'replace')}")
        time.sleep(0.02)


def _account(handle: Json, back: float, asked: Json, final: Json) -> None:
    """The same lines in words, with what happened between them, and what came out of it."""
    [question] = (request["params"]["message"] for request in asked["inputRequests"].values())
    text = next((block.get("text") for block in final.get("result", {}).get("content", [])), None)
    print(
        f"""
What happened:

id=0  server/discover: the server knows tasks.
id=1  tools/call: the task is on the disk. Its handle: {handle["taskId"]}
      The server was killed (SIGKILL) in the middle of the work. A new one was up {back:.1f} s later.
id=2  tasks/get: the new server saw that the process which held the task is gone, and runs the tool.
id=3  tasks/get: the tool asks "{question}"
      Nothing of it is in memory while it waits.
id=4  tasks/update: a person's answer, yes. The tool goes on.
id=5  tasks/get: {final["status"]}, and the result is there:

      {text}"""
    )
