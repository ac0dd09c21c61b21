"""The client of the Python SDK listens to a task of `examples/report_server.py`, whatever becomes of its connection.

python examples/listening_with_the_sdk.py --port 8000
"""

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession

FINAL = {"completed", "failed", "cancelled"}


class Handle(types.Result):
    result_type: Literal["task"] = "task"
    task_id: str


class Task(types.Result):
    task_id: str
    status: str
    last_updated_at: str
    status_message: str | None = None
    input_requests: dict[str, types.ElicitRequest] | None = None
    result: types.CallToolResult | None = None
    error: types.ErrorData | None = None


class TaskRequest(types.Request[dict[str, Any], str]):
    """Of the extension's methods the SDK knows nothing: which parameter has to be in `Mcp-Name` has to be said."""

    name_param = "taskId"


class TasksExtension(ClientExtension):
    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.session: ClientSession | None = None
        self._newest = ""

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Or a call that is answered with a handle would be an error."""
        return [ResultClaim(result_type="task", model=Handle, resolve=self._finish)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return [NotificationBinding(method="notifications/tasks", params_type=Task, handler=self._hear)]

    async def _finish(self, handle: Handle, ctx: ClaimContext) -> types.CallToolResult:
        """What `Client.call_tool` would return. `call` asks for the handle instead, since that outlives the client."""
        raise NotImplementedError

    async def _hear(self, task: Task) -> None:
        """Two that are close to each other may come in the wrong order."""
        if self.session is None or task.last_updated_at < self._newest:
            return
        self._newest = task.last_updated_at
        print(task.status, task.status_message or "")
        if task.input_requests:
            answers: dict[str, Any] = {}
            for key, question in task.input_requests.items():
                ctx = ClientRequestContext(session=self.session, request_id=key)
                answer = await self.session.dispatch_input_request(ctx, question)
                answers[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
            update = TaskRequest(method="tasks/update", params={"taskId": task.task_id, "inputResponses": answers})
            await self.session.send_request(update, types.EmptyResult)


async def call(session: ClientSession) -> str:
    answer = await session.call_tool("generate_report", {"size": "large"}, allow_claimed=True)
    if isinstance(answer, Handle):
        return answer.task_id
    raise TypeError("The call was answered at once")


async def listen(session: ClientSession, task_id: str) -> Task:
    """One stream, to its end, which does not say why it came; and how the task stands then."""
    asked = types.SubscriptionFilter.model_validate({"taskIds": [task_id]})
    params = types.SubscriptionsListenRequestParams(notifications=asked)
    await session.send_request(types.SubscriptionsListenRequest(params=params), types.SubscriptionsListenResult)
    return await session.send_request(TaskRequest(method="tasks/get", params={"taskId": task_id}), Task)


async def approve(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"approved": True})


async def follow(url: str, task_id: str = "") -> Task:
    """Call the tool, unless there is a task already; then listen, and listen again, until it is over."""
    while True:
        extension = TasksExtension()
        try:
            async with Client(url, extensions=[extension], elicitation_callback=approve) as client:
                extension.session = client.session
                if not task_id:
                    task_id = await call(client.session)
                task = await listen(client.session, task_id)
                if task.status in FINAL:
                    return task
        except* httpx2.TransportError:
            print("the connection broke")
        except* MCPError as errors:
            if errors.subgroup(lambda error: isinstance(error, MCPError) and error.code != types.CONNECTION_CLOSED):
                raise
            print("the server is not available")  # or the connection broke: the code is the same
        await asyncio.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a task of examples/report_server.py.")
    parser.add_argument("--port", type=int, default=8000)
    task = asyncio.run(follow(f"http://127.0.0.1:{parser.parse_args().port}/mcp"))
    print(task.result.content if task.result else task.error or task.status)


if __name__ == "__main__":
    main()
