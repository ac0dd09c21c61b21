"""Celery tasks, and a server whose tools wait for them. CELERY_BROKER is the broker; CELERY_LOG takes what ran.

celery -A tests.adapters.celery_app worker
python tests/adapters/celery_app.py --port 8000 --store sqlite:///tasks.db
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

from perdure import StepFailed, TaskContext, Tasks, serve
from perdure.adapters.celery import run_celery

BROKER = os.environ["CELERY_BROKER"]
LOG = Path(os.environ["CELERY_LOG"])

app = Celery("jobs", broker=BROKER, backend=BROKER)
app.conf.update(
    task_track_started=True,
    broker_connection_retry_on_startup=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_send_task_events=False,
)


def note(word: str) -> None:
    with LOG.open("a") as log:
        log.write(word + "\n")


# Named, since the server is a script and would name them after itself.
@app.task(name="resize")
def resize(size: str, gate: str = "") -> dict[str, Any]:
    """Wait until the file `gate` is there, if one is named."""
    note(f"resize {size}")
    note(f"{size} {os.getpid()}")
    while gate and not Path(gate).exists():
        time.sleep(0.02)
    return {"size": size, "pixels": [1, 2]}


@app.task(name="broken")
def broken() -> None:
    note("broken")
    raise ValueError("no such picture")


tasks = Tasks("sqlite:///tasks.db", lease="1h", grace="1ms")
mcp = tasks.server("celery")


@tasks.tool(poll_interval="50ms", max_attempts=1000)
async def picture(size: str, task: TaskContext, gate: str = "", timeout: float | None = None) -> list[Any]:  # noqa: ASYNC109
    """Have a picture resized."""
    try:
        return [await run_celery(task, "resize", resize.s(size, gate), timeout=timeout, poll="100ms")]
    except StepFailed as failed:
        return [f"{failed.type}: {failed.message}"]


@tasks.tool(poll_interval="50ms")
async def hopeless(task: TaskContext) -> list[Any]:
    try:
        return [await run_celery(task, "broken", broken.s(), timeout="1m", poll="100ms")]
    except StepFailed as failed:
        return [f"{failed.type}: {failed.message}"]


if __name__ == "__main__":
    serve(mcp)
