"""An export: small ones are answered at once, large ones become tasks, and no page is fetched twice."""

from pydantic import BaseModel

from perdure import Retry, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///exporting.db")
mcp = tasks.server("exporting")

PAGE = 1_000


class Export(BaseModel):
    """Where the rows are. The rows themselves would be read again with each poll."""

    url: str
    rows: int


async def fetch(year: int, page: int) -> str:
    """Stands for a request to a warehouse: rows copied to a part of the file, and that part's name."""
    return f"{year}/part-{page}"


async def join(parts: list[str]) -> str:
    """Stands for the parts made one file. The same parts make the same file, so it may happen twice."""
    return f"https://files.example.com/{parts[0].partition('/')[0]}.csv"


def is_large(rows: int) -> bool:
    return rows > PAGE


@tasks.tool(when=is_large, ttl="2h", keep_result="1d")
async def export_orders(year: int, rows: int, task: TaskContext) -> Export:
    """Export a year of orders to a file."""
    again = Retry(max_attempts=5, backoff="1s", on=(ConnectionError, TimeoutError))
    parts = list[str]()
    for page in range(-(-rows // PAGE)):
        parts.append(await task.step(f"page {page}", fetch, year, page, retry=again, timeout="1m"))
        await task.report(f"{min((page + 1) * PAGE, rows)} of {rows} orders.")
    return Export(url=await task.step("join", join, parts), rows=rows)


if __name__ == "__main__":
    serve(mcp)
