"""A tool that was changed while tasks of it were waiting: the new code, and the old code for those tasks."""

from pydantic import BaseModel

from perdure import TaskContext, Tasks, serve

tasks = Tasks("sqlite:///versions.db")
mcp = tasks.server("versions")


class Approval(BaseModel):
    approved: bool


async def write(topic: str) -> str:
    return f"All about {topic}."


async def proofread(text: str) -> str:
    return f"{text} (proofread)"


async def approved(task: TaskContext) -> bool:
    answer = await task.elicit("approve", "Publish the article?", Approval)
    return answer.data is not None and answer.data.approved


@tasks.tool(version="2")
async def article(topic: str, task: TaskContext) -> str:
    """Write an article, and ask whether to publish it."""
    text = await task.step("write", write, topic)
    text = await task.step("proofread", proofread, text)  # new in version 2
    return text if await approved(task) else "Not published."


@tasks.retired("article", version=None)
async def article_before_2(topic: str, task: TaskContext) -> str:
    text = await task.step("write", write, topic)
    return text if await approved(task) else "Not published."


if __name__ == "__main__":
    serve(mcp)
