"""Steps side by side, a step that may fail, and one that must not happen twice."""

from perdure import StepFailed, StepInterrupted, TaskContext, Tasks, serve

tasks = Tasks("sqlite:///trips.db")
mcp = tasks.server("trips")


class FullyBookedError(Exception):
    """What these functions raise if there is nothing left."""


async def find_flight(to: str) -> str:
    return f"flight to {to}"


async def find_room(to: str) -> str:
    if to == "Atlantis":
        raise FullyBookedError("no room is free")
    return f"room in {to}"


async def charge(what: list[str]) -> str:
    """Stands for a request to a bank that charges twice if it is asked twice."""
    return "receipt 1"


async def find_charge(what: list[str]) -> str | None:
    """Stands for a look at the bank statement."""
    return None


@tasks.tool()
async def book_trip(to: str, task: TaskContext) -> str:
    """Book a flight and a room."""
    try:
        found = await task.gather(
            task.step("flight", find_flight, to),
            task.step("room", find_room, to),
        )
    except StepFailed as failed:
        task.decline(f"No trip to {to}: {failed.message}")
    try:
        receipt = await task.step("charge", charge, [*found], at_most_once=True)
    except StepInterrupted:
        receipt = await task.step("look for the charge", find_charge, [*found])
    if receipt is None:
        task.decline(f"No trip to {to}: something broke before it was paid. Nothing was charged.")
    return receipt


if __name__ == "__main__":
    serve(mcp)
