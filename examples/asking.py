"""Tools that ask people things, and a plain function that can be stopped."""

from typing import Literal

from pydantic import BaseModel

from perdure import Elicit, SyncTaskContext, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///asking.db")
mcp = tasks.server("asking")


class Approval(BaseModel):
    approved: bool


class Seat(BaseModel):
    seat: Literal["window", "aisle"]


class Meal(BaseModel):
    vegetarian: bool


@tasks.tool()
async def tidy_up(folder: str, task: TaskContext) -> str:
    """Tidy a folder up, if a person says so (nothing is deleted)."""
    answer = await task.elicit("approve", f"Tidy up {folder}?", Approval)
    # `action` is "accept", "decline" or "cancel"; `data` is an Approval if it is "accept", and None otherwise.
    if answer.data is None or not answer.data.approved:
        task.decline(f"{folder} was left alone: {answer.action}.")
    return f"{folder} is tidy."


@tasks.tool()
async def book_flight(to: str, task: TaskContext) -> str:
    """Ask two things at once."""
    answers = await task.ask({"seat": Elicit("Window or aisle?", Seat), "meal": Elicit("A vegetarian meal?", Meal)})
    return f"To {to}; seat: {answers['seat'].action}, meal: {answers['meal'].action}."


@tasks.tool()
def count_primes(below: int, task: SyncTaskContext) -> int:
    """Count, in a thread, and look now and then whether to stop."""
    found = 0
    for n in range(2, below):
        if n % 1000 == 0:
            task.checkpoint()
        found += all(n % d for d in range(2, int(n**0.5) + 1))
    return found


if __name__ == "__main__":
    serve(mcp)
