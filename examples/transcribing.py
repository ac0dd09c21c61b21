"""A transcript: another system does the work and can only be asked how far it is."""

from pydantic import BaseModel

from perdure import Finished, Handle, StepFailed, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///transcribing.db")
mcp = tasks.server("transcribing")


class Job(BaseModel):
    """What the other system says of a job."""

    state: str
    text: str = ""


async def submit(recording: str, key: str) -> None:
    """Stands for a request to a service that makes one job of a key, however often it is asked."""


async def look(key: str) -> Job:
    """Stands for a request to that service."""
    return Job(state="done", text="…")


async def withdraw(handle: Handle) -> None:
    """Stands for a request to give a job up. It may be over already."""


async def poll(handle: Handle) -> Finished | None:
    job = await look(handle.id)
    match job.state:
        case "done":
            return Finished(job.text)
        case "failed":
            return Finished(error=job.text)
        case _:
            return None


@tasks.tool(mode="task", ttl="1d", keep_result="7d", poll_interval="5s")
async def transcribe(recording: str, task: TaskContext) -> str:
    """Write down what is said in a recording."""

    async def start(handle: Handle) -> None:
        await submit(recording, handle.id)

    try:
        return await task.external(
            "transcript", start, poll=poll, cancel=withdraw, every="10s", timeout="12h", returns=str
        )
    except StepFailed as failed:
        task.decline(f"There is no transcript of {recording}: {failed.message}")


if __name__ == "__main__":
    serve(mcp)
