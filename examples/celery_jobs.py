"""A Celery task that a tool waits for.

celery -A celery_jobs:farm worker
python celery_jobs.py
"""

from celery import Celery

from perdure import StepFailed, TaskContext, Tasks, serve
from perdure.adapters.celery import run_celery

farm = Celery("farm", broker="redis://localhost/0", backend="redis://localhost/1")
farm.conf.task_track_started = True  # or a task that runs looks like one that nobody has heard of
tasks = Tasks("sqlite:///celery_jobs.db")
mcp = tasks.server("pictures")


@farm.task(name="resize")  # named, since this module is `__main__` in one of the two processes
def resize(picture: str, width: int) -> str:
    return f"{picture} at {width}"


@tasks.tool(mode="task", ttl="1d")
async def thumbnail(picture: str, task: TaskContext) -> str:
    """Make a small picture of a large one."""
    try:
        return await run_celery(task, "resize", resize.s(picture, 64), timeout="1h", returns=str)
    except StepFailed as failed:
        task.decline(f"There is no thumbnail of {picture}: {failed.message}")


if __name__ == "__main__":
    serve(mcp)
