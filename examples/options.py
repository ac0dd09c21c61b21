"""`when`, `prepare`, and a plain function that can be stopped."""

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

from perdure import SyncTaskContext, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///options.db")
mcp = tasks.server("options")


def is_long(text: str) -> bool:
    """Names the arguments that it wants to see. Where it is false, the call is answered at once."""
    return len(text) > 1000


@tasks.tool(when=is_long, ttl="1h", keep_result="1d")
async def count_words(text: str, task: TaskContext) -> int:
    await task.report("Counting.")
    return len(text.split())


async def ask_address(ctx: Context) -> str | InputRequiredResult:
    """Runs once for each round, before there is a task. What it returns in the end is `task.prepared`."""
    answer = (ctx.input_responses or {}).get("address")
    if answer is None:
        schema = {"type": "object", "properties": {"address": {"type": "string"}}, "required": ["address"]}
        form = ElicitRequestFormParams(message="Send the letters to whom?", requested_schema=schema)
        return InputRequiredResult(input_requests={"address": ElicitRequest(params=form)})
    if not isinstance(answer, ElicitResult) or answer.action != "accept" or answer.content is None:
        raise ToolError("Nothing was sent: there is no address.")
    return str(answer.content["address"])


@tasks.tool(mode="task", prepare=ask_address)
def send_letters(count: int, task: SyncTaskContext) -> str:
    """In a thread, so the verbs block; each `checkpoint` is where a cancellation, or a shutdown, may end the run."""
    for number in range(1, count + 1):
        task.checkpoint()
        task.report(f"Letter {number} of {count}.")
    return f"{count} letters to {task.prepared}"


if __name__ == "__main__":
    serve(mcp)
