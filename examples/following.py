"""A client of `examples/report_server.py` that listens to its task instead of asking how it is.

python examples/following.py --port 8000          calls the tool
python examples/following.py --port 8000 TASK     listens to a task that there is
"""

import argparse
import http.client
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
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
YES: Json = {"action": "accept", "content": {"approved": True}}
FINAL = {"completed", "failed", "cancelled"}
UNAVAILABLE = -32000


class Refused(Exception):
    """The code and the message of the error that a request came to."""


def send(port: int, method: str, params: Json, name: str = "") -> Iterator[Json]:
    """One request; yields what comes back, the notifications first and the result last, if there is one."""
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": name} if name else {}),
    }
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        response = connection.getresponse()
        streams = response.getheader("Content-Type") == "text/event-stream"
        lines = (line.removeprefix(b"data: ") for line in response if line.startswith(b"data: "))
        for message in map(json.loads, lines if streams else [response.read()]):
            if "error" in message:
                raise Refused(message["error"]["code"], message["error"]["message"])
            yield message


def ask(port: int, method: str, params: Json, name: str) -> Json:
    """The result of a request that is answered at once."""
    (answer,) = send(port, method, params, name)
    return answer["result"]


def listen(port: int, task_id: str) -> bool:
    """One stream, to its end. Whether the task is over, which the end alone does not say."""
    status = ""
    for message in send(port, "subscriptions/listen", {"notifications": {"taskIds": [task_id]}}):
        match message:
            case {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {"taskIds": []}}}:
                ask(port, "tasks/get", {"taskId": task_id}, task_id)  # is refused, and the error says why
            case {"method": "notifications/tasks", "params": task}:
                status = task["status"]
                said = task.get("result", {}).get("content") or task.get("error") or task.get("statusMessage", "")
                print(status, said)
                if status == "input_required":
                    answers = dict.fromkeys(task["inputRequests"], YES)
                    ask(port, "tasks/update", {"taskId": task_id, "inputResponses": answers}, task_id)
            case _:
                print(message.get("method", "the end of the stream"))
    return status in FINAL


def follow(port: int, task_id: str) -> None:
    """Listen, and listen again, until the task is over."""
    while True:
        try:
            if listen(port, task_id):
                return
        except Refused as refused:
            if refused.args[0] != UNAVAILABLE:
                raise
            print(*refused.args)
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            print("the connection broke:", error)
        time.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a task of examples/report_server.py.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("task", nargs="?")
    options = parser.parse_args()
    call: Json = {"name": "generate_report", "arguments": {"size": "large"}}
    try:
        follow(options.port, options.task or ask(options.port, "tools/call", call, "generate_report")["taskId"])
    except Refused as refused:
        sys.exit(f"refused: {refused.args[1]} ({refused.args[0]})")


if __name__ == "__main__":
    main()
