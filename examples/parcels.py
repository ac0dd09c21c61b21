"""Timers: a tool that sleeps for days, and questions that are given up."""

from pydantic import BaseModel

from perdure import TaskContext, Tasks, serve

tasks = Tasks("sqlite:///parcels.db")
mcp = tasks.server("parcels")


class Arrival(BaseModel):
    arrived: bool


@tasks.tool(mode="task", ttl="30d")
async def follow_up(parcel: str, task: TaskContext) -> str:
    """Ask after three days whether a parcel has arrived, and up to twice more."""
    await task.sleep("3 days")
    for number in (1, 2, 3):
        answer = await task.elicit(f"arrived_{number}", f"Has parcel {parcel} arrived?", Arrival, timeout="1 day")
        if answer.data is not None and answer.data.arrived:
            return f"Parcel {parcel} has arrived."
        if not answer.timed_out:
            await task.sleep("1 day")
    return f"Nobody knows where parcel {parcel} is."


if __name__ == "__main__":
    serve(mcp)
