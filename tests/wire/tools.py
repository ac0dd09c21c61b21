"""The tools that most wire tests call, and handles on what they do."""

import asyncio

from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from perdure import Elicit, TaskContext, Tasks


class Form(BaseModel):
    ok: bool


class Entry(BaseModel):
    name: str = Field(max_length=10)


class Report(BaseModel):
    size: str
    pages: int


FORM = {"action": "accept", "content": {"ok": True}}
ENTRY = {"action": "accept", "content": {"name": "Ada"}}


def is_large(n: int) -> bool:
    """Whether `sized` is worth a task."""
    return n > 1


class Tools:
    """One server's tools. `declare` is what `stage` takes; tests look at what ran, and open the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        """What `gated` and `stubborn` wait for."""
        self.entered = asyncio.Event()
        """Set once one of them waits."""
        self.ran: list[str] = []
        """The tools that ran, again for each run."""
        self.ended: list[str] = []
        """How the runs that waited at the gate ended."""

    def declare(self, tasks: Tasks) -> None:
        for function in (self.hello, self.report, self.say, self.gated, self.stubborn, self.broken, self.refuse):
            tasks.tool()(function)
        for function in (self.ask, self.ask_two, self.ask_twice):
            tasks.tool()(function)
        tasks.tool(mode="task", poll_interval="2s", ttl="15m")(self.must)
        tasks.tool(when=is_large)(self.sized)

    async def hello(self, name: str) -> str:
        """Greet."""
        self.ran.append("hello")
        return f"Hello, {name}!"

    async def report(self, size: str) -> Report:
        return Report(size=size, pages=7)

    async def must(self, task: TaskContext) -> str:
        return task.id

    async def sized(self, n: int) -> str:
        return f"{n}"

    async def say(self, words: list[str], task: TaskContext) -> str:
        """Say one word, then wait at the gate before the rest."""
        for word in words:
            await task.report(word)
            self.entered.set()
            await self.gate.wait()
        return "said"

    async def gated(self) -> str:
        self.ran.append("gated")
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("returned")
        return "through"

    async def stubborn(self) -> str:
        """Does not want to be cancelled."""
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.gate.wait()
        return "finished all the same"

    async def broken(self, code: int, message: str) -> str:
        raise MCPError(code, message, {"hint": "none"})

    async def refuse(self, reason: str, task: TaskContext) -> str:
        task.decline(reason)

    async def ask(self, task: TaskContext) -> str:
        self.ran.append("ask")
        answer = await task.elicit("form", "All right?", Form)
        return f"{answer.action} {answer.data.ok if answer.data else None}"

    async def ask_two(self, task: TaskContext) -> str:
        """Two questions at once."""
        answers = await task.ask({"form": Elicit("All right?", Form), "entry": Elicit("Who?", Entry)})
        return ", ".join(f"{key}={answer.action}" for key, answer in answers.items())

    async def ask_twice(self, task: TaskContext) -> str:
        """Two questions, one after the other."""
        first = await task.elicit("form", "All right?", Form)
        second = await task.elicit("entry", "Who?", Entry)
        return f"{first.action}, {second.action}"
