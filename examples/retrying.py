"""Trying again: a step by itself, and the tool as a whole."""

from perdure import Retry, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///retrying.db")
mcp = tasks.server("retrying")


async def fetch(url: str) -> str:
    """Stands for a request over a line that drops now and then."""
    return f"what {url} says"


async def translate(text: str, to: str) -> str:
    """Stands for a service that is down for an hour now and then."""
    return f"{text}, in {to}"


OFTEN = Retry(max_attempts=4, backoff="200ms", on=(ConnectionError, TimeoutError))
PATIENTLY = Retry(max_attempts=6, backoff="1m", factor=3, longest="2h", on=(ConnectionError, TimeoutError))


@tasks.tool(retry=PATIENTLY, timeout="10m")
async def translate_page(url: str, to: str, task: TaskContext) -> str:
    """Fetch a page and translate it."""
    text = await task.step("fetch", fetch, url, retry=OFTEN, timeout="30s")
    return await task.step("translate", translate, text, to)


if __name__ == "__main__":
    serve(mcp)
