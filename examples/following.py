"""A client of `examples/report_server.py` that listens to its task instead of asking how it is.

python examples/following.py --port 8000
"""

import argparse
import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]

META: Json = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "following", "version": "1.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}


class Client:
    def __init__(self, port: int) -> None:
        self._port = port
        self._ids = itertools.count(1)

    def send(self, method: str, params: Json, name: str = "") -> Iterator[Json]:
        """One request; yields what comes back, the notifications first and the response last."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **({"Mcp-Name": name} if name else {}),
        }
        body: Json = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": META}}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            response = connection.getresponse()
            if response.getheader("Content-Type") == "text/event-stream":
                for line in response:
                    if line.startswith(b"data: "):
                        yield json.loads(line.removeprefix(b"data: "))
            else:
                yield json.loads(response.read())
        finally:
            connection.close()

    def ask(self, method: str, params: Json, name: str) -> Json:
        """The result of a request that is answered at once."""
        (answer,) = self.send(method, params, name)
        return answer["result"]


def follow(client: Client, task_id: str) -> None:
    """Print how the task stands, whenever that changes, and answer what it asks."""
    for message in client.send("subscriptions/listen", {"notifications": {"taskIds": [task_id]}}):
        if message.get("method") != "notifications/tasks":
            print(message.get("method", "the end"))
            continue
        task = message["params"]
        print(task["status"], task.get("statusMessage", ""))
        if task["status"] == "input_required":
            answers = {key: {"action": "accept", "content": {"approved": True}} for key in task["inputRequests"]}
            client.ask("tasks/update", {"taskId": task_id, "inputResponses": answers}, task_id)
        elif task["status"] == "completed":
            print(task["result"]["structuredContent"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a task of examples/report_server.py.")
    parser.add_argument("--port", type=int, default=8000)
    client = Client(parser.parse_args().port)
    arguments = {"name": "generate_report", "arguments": {"size": "large"}}
    follow(client, client.ask("tools/call", arguments, "generate_report")["taskId"])


if __name__ == "__main__":
    main()
