"""A release: a person decides, it goes out at most once, and a cancellation leaves nothing half done."""

from pydantic import BaseModel

from perdure import StepInterrupted, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///releasing.db")
mcp = tasks.server("releasing")


class Decision(BaseModel):
    publish: bool


async def build(version: str) -> str:
    """Stands for a build."""
    return f"release-{version}.tar.gz"


async def reserve(version: str) -> None:
    """Stands for a note elsewhere that this version is taken."""


async def let_go(version: str) -> None:
    """Stands for that note being taken back. There may be none."""


async def publish(archive: str) -> str:
    """Stands for an upload to an index that takes each name once."""
    return f"https://index.example.com/{archive}"


async def find_published(archive: str) -> str | None:
    """Stands for a look at the index."""
    return None


@tasks.tool(mode="task", ttl="7d", keep_result="30d")
async def release(version: str, task: TaskContext) -> str:
    """Build a version and publish it, if a person says so within five days."""
    archive = await task.step("build", build, version)
    answer = await task.elicit("publish", f"Publish {archive}?", Decision, timeout="5 days")
    if answer.data is None or not answer.data.publish:
        task.decline(f"{version} was not published: {answer.action}.")
    # Not before the question: a task that is cancelled while it waits runs no more code, so it must hold nothing then.
    await task.step("reserve", reserve, version)
    async with task.shield():
        try:
            url = await task.step("publish", publish, archive, at_most_once=True)
        except StepInterrupted:
            url = await task.step("look for it", find_published, archive)
        if url is None:
            await task.step("let go", let_go, version)
    if url is None:
        task.decline(f"{version} was not published: something broke before it was sent.")
    return url


if __name__ == "__main__":
    serve(mcp)
