"""A tool that asks before there is a task."""

from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from perdure import TaskContext, Tasks

SCHEMA = {"type": "object", "properties": {"address": {"type": "string"}}, "required": ["address"]}


async def ask_address(ctx: Context) -> str | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("address")
    if answer is None:
        form = ElicitRequestFormParams(message="To whom?", requested_schema=SCHEMA)
        return InputRequiredResult(input_requests={"address": ElicitRequest(params=form)})
    assert isinstance(answer, ElicitResult)
    return str((answer.content or {}).get("address"))


async def send_letters(task: TaskContext) -> str:
    return f"sent to {task.prepared}"


def declare(tasks: Tasks) -> None:
    tasks.tool(prepare=ask_address)(send_letters)
