"""Work that another system does, which says so over HTTP when it is done."""

from perdure import Handle, StepFailed, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///rendering.db")
mcp = tasks.server("rendering")
tasks.callbacks(mcp)  # POST /perdure/external


async def submit(scene: str, job: str) -> None:
    """Stands for a request to a render farm. `job` is its name for the job, and its bearer token for the callback."""


async def withdraw(handle: Handle) -> None:
    """Stands for a request to the farm to give a job up."""


@tasks.tool(mode="task", ttl="2d")
async def render(scene: str, task: TaskContext) -> str:
    """Render a scene on the farm."""

    async def start(handle: Handle) -> None:
        await submit(scene, handle.id)

    try:
        return await task.external("render", start, cancel=withdraw, timeout="1 day", returns=str)
    except StepFailed as failed:
        task.decline(f"There is no picture of {scene}: {failed.message}")


if __name__ == "__main__":
    serve(mcp)
