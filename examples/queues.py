"""Who runs what: queues, priorities, and bounds."""

from perdure import SyncTaskContext, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///queues.db", backlog=5_000, tenant_backlog=500)
mcp = tasks.server("queues")


@tasks.tool(queue="slow", concurrency=2)
def train(epochs: int, task: SyncTaskContext) -> str:
    """Keep a processor busy."""
    for _ in range(epochs):
        task.checkpoint()
    return f"trained for {epochs} epochs"


@tasks.tool(priority=10)
async def predict(text: str, task: TaskContext) -> int:
    """Be there before the others."""
    return len(text)


@tasks.tool()
async def describe(text: str, task: TaskContext) -> str:
    """Take turns with what else has no priority."""
    return f"{len(text)} characters"


if __name__ == "__main__":
    serve(mcp)
