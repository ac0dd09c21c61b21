"""A report that takes a while and waits for a person.

    python examples/report_server.py --port 8000 --store sqlite:///reports.db [--worker/--no-worker]

serves `/mcp` on 127.0.0.1.
"""

from pydantic import BaseModel

from perdure import TaskContext, Tasks, serve

tasks = Tasks("sqlite:///reports.db")
mcp = tasks.server("reports")


class Approval(BaseModel):
    approved: bool


class Report(BaseModel):
    size: str
    approved: bool


async def draft(size: str) -> list[str]:
    """Slow and costly, one imagines."""
    return ["Summary"] if size == "small" else ["Summary", "Figures", "Outlook"]


async def publish(outline: list[str]) -> None:
    """Puts the report where people read it."""


@tasks.tool(ttl="15m")
async def generate_report(size: str, task: TaskContext) -> Report:
    """Write a report; a person approves the outline first."""
    outline = await task.step("draft", draft, size)
    await task.report("The outline is ready.")
    answer = await task.elicit("approve_outline", "Approve the generated report outline?", Approval)
    if answer.data is None or not answer.data.approved:
        task.decline("The outline was not approved.")
    await task.step("publish", publish, outline)
    return Report(size=size, approved=True)


if __name__ == "__main__":
    serve(mcp)
