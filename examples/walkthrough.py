"""The life of a task, request by request, over plain HTTP. A client of `examples/report_server.py`.

python examples/walkthrough.py --port 8000
"""

import argparse
import http.client
import json
import time
from typing import Any

Json = dict[str, Any]

META: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "walkthrough", "version": "1.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
"""Goes along with every request: there is no session that could remember it."""


class Client:
    def __init__(self, port: int) -> None:
        self._address = f"127.0.0.1:{port}"
        self._last_id = 0

    def send(self, method: str, name: str, params: Json) -> Json:
        """One request, shown with its response. `name` is the tool; in `tasks/*` it is the task's id."""
        self._last_id += 1
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": name,
        }
        body: Json = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": {**params, "_meta": META}}
        show(["POST /mcp HTTP/1.1", *(f"{header}: {value}" for header, value in headers.items())], body)
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        head = f"HTTP/1.1 {response.status} {response.reason}"
        show([head, f"Content-Type: {response.getheader('Content-Type')}"], answer)
        return answer["result"]

    def poll(self, task: Json, until: str) -> None:
        """Ask for the task, as often as it wants to be asked, until it is as far as that."""
        task_id = task["taskId"]
        for _ in range(60):
            time.sleep(task["pollIntervalMs"] / 1000)
            task = self.send("tasks/get", task_id, {"taskId": task_id})
            if task["status"] == until:
                return
        raise SystemExit(f"{task_id} is still {task['status']}")


def show(head: list[str], body: Json) -> None:
    print(*head, "", json.dumps(body, indent=2), "", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take a task of examples/report_server.py through its life.")
    parser.add_argument("--port", type=int, default=8000)
    client = Client(parser.parse_args().port)

    task = client.send("tools/call", "generate_report", {"name": "generate_report", "arguments": {"size": "large"}})
    client.poll(task, until="input_required")
    answers: Json = {"approve_outline": {"action": "accept", "content": {"approved": True}}}
    client.send("tasks/update", task["taskId"], {"taskId": task["taskId"], "inputResponses": answers})
    client.poll(task, until="completed")


if __name__ == "__main__":
    main()
