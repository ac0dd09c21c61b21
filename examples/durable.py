"""Steps, and a person in between: what is done is done, whatever crashes, and however long the answer takes."""

from pydantic import BaseModel

from perdure import TaskContext, Tasks, serve

tasks = Tasks("sqlite:///durable.db")
mcp = tasks.server("durable")


class Outline(BaseModel):
    title: str
    chapters: list[str]


class Approval(BaseModel):
    approved: bool


async def draft_outline(topic: str) -> Outline:
    """Slow and costly, one imagines. An ordinary function: it knows nothing of tasks."""
    return Outline(title=topic.title(), chapters=["What it is", "How it came about", "What is next"])


async def write_chapter(title: str, chapter: str) -> str:
    return f"{chapter}, in a book about {title}."


def publish(text: str) -> str:
    """A plain function runs in a thread."""
    return f"https://books.example/{len(text)}"


@tasks.tool()
async def write_book(topic: str, task: TaskContext) -> str:
    """Write a book; a person approves the outline first."""
    outline = await task.step("outline", draft_outline, topic)
    await task.report(f"The outline has {len(outline.chapters)} chapters.")
    answer = await task.elicit("approve", f"Write {outline.title!r}?", Approval)
    if answer.data is None or not answer.data.approved:
        task.decline("The outline was not approved.")
    chapters = await task.gather(
        *[task.step("chapter", write_chapter, outline.title, chapter) for chapter in outline.chapters]
    )
    return await task.step("publish", publish, "\n".join(chapters), at_most_once=True)


if __name__ == "__main__":
    serve(mcp)
