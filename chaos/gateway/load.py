"""What the clients do: several owners who make tasks at either gateway, and who hang up, listen, and pry."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.history import TERMINAL
from chaos.processes import Seat

from .client import Client
from .tokens import OWNERS
from .told import Asked, Task, Why, accepted

__all__ = ["Load", "Pace"]

JSON = Any

_TOOLS: Final = {"ours_work": 4, "ours_ask": 3, "fast_work": 3, "plain_work": 2}
_CANCELS: Final = 0.015
"""How many of the looks at a task are a `tasks/cancel`."""
_BACK: Final = 0.35
"""How many of the calls are taken back."""
_MOST: Final = 400
"""Calls in all, for each call a second: so the clients end by themselves, whatever becomes of the faults."""


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate`: calls a second, of all owners. `open`: tasks that may be unfinished at once."""

    rate: float = 4.0
    open: int = 60


class Load:
    """The clients. `cancelled`: the tasks for which `tasks/cancel` was sent, by their ids."""

    def __init__(self, client: Client, gateways: Sequence[Seat], rng: random.Random, pace: Pace) -> None:
        self._client = client
        self._gateways = gateways
        self._rng = rng
        self._pace = pace
        self._open: list[Task] = []
        self._over: list[Task] = []
        self._made = 0
        self._calm = False
        self.cancelled: set[str] = set()

    @property
    def made(self) -> int:
        return self._made

    @property
    def open(self) -> int:
        return len(self._open)

    def finish(self) -> None:
        """No new tasks, and no tricks."""
        self._calm = True

    @property
    def _ours(self) -> list[Task]:
        return [task for task in self._open if task.tool.startswith("ours")]

    # -- making tasks --------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Call tools until it is time to finish, each call in a task of its own."""
        async with asyncio.TaskGroup() as group:
            while not self._calm and self._made < _MOST * self._pace.rate:
                await asyncio.sleep(self._rng.expovariate(self._pace.rate))
                if len(self._open) < self._pace.open:
                    group.create_task(self._create_one())

    async def _create_one(self) -> None:
        (tool,) = self._rng.choices([*_TOOLS], [*_TOOLS.values()])
        owner = self._rng.choice(OWNERS)
        self._made += 1
        arguments = {"label": f"{owner}-{self._made}", "seconds": round(self._rng.uniform(0, 2), 2)}
        key = f"{self._rng.getrandbits(64):x}" if self._rng.random() < 0.5 else None
        why = self._rng.choice((Why.HUNG_UP, Why.TAKEN_BACK)) if self._rng.random() < _BACK else Why.OWN
        told = await self._client.call(owner, self._any(), tool, arguments, why, key)
        if key is not None and told.result is None:  # under the key the same task, wherever it is asked for
            told = await self._client.call(owner, self._any(), tool, arguments, Why.OWN, key)
        for task in (task for tasks in accepted([told]).values() for task in tasks):
            self._open.append(task)

    # -- looking -------------------------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Look after tasks, until there is nothing left to do."""
        while not self._calm or self._ours:
            await asyncio.sleep(self._rng.uniform(0.02, 0.15))
            if some := self._ours if self._calm else self._open:
                await self._look(self._rng.choice(some))
            if self._over and self._rng.random() < 0.1:
                task = self._rng.choice(self._over)
                await self._get(task, Why.OWN)

    async def _look(self, task: Task) -> None:
        dice = self._rng.random()
        if not self._calm and dice < 0.15:
            await self._pry(task)
        elif not self._calm and dice < 0.3:
            await self._get(task, self._rng.choice((Why.HUNG_UP, Why.TAKEN_BACK)))
        elif not self._calm and dice < 0.3 + _CANCELS:
            self.cancelled.add(task.id)
            await self._client.ask(task.owner, self._any(), "tasks/cancel", task.id, Why.OWN)
        else:
            await self._follow(task, await self._get(task, Why.OWN))

    async def _follow(self, task: Task, told: Asked) -> None:
        if told.result is None:
            return
        if told.result["status"] in TERMINAL:
            if task in self._open:
                self._open.remove(task)
                self._over.append(task)
        elif told.result["status"] == "input_required":
            answer = {"action": "accept", "content": {"label": task.label}}
            responses = dict.fromkeys(told.result["inputRequests"], answer)
            await self._client.ask(task.owner, self._any(), "tasks/update", task.id, Why.OWN, inputResponses=responses)

    async def _get(self, task: Task, why: Why) -> Asked:
        return await self._client.ask(task.owner, self._any(), "tasks/get", task.id, why)

    async def _pry(self, task: Task) -> None:
        """Ask for somebody else's task."""
        stranger = self._rng.choice([owner for owner in OWNERS if owner != task.owner])
        method = self._rng.choice(("tasks/get", "tasks/cancel", "tasks/update"))
        more: JSON = {"inputResponses": {}} if method == "tasks/update" else {}
        await self._client.ask(stranger, self._any(), method, task.id, Why.STRANGER, **more)

    async def listen(self) -> None:
        """Streams over tasks of several backends, some of them somebody else's, and hang up on each."""
        while not self._calm:
            await asyncio.sleep(self._rng.uniform(0.1, 0.5))
            if self._open:
                some = self._rng.sample(self._open, min(len(self._open), 8))
                owner = self._rng.choice(some).owner
                seconds = self._rng.uniform(0.5, 5)
                await self._client.listen(owner, self._any(), [task.id for task in some], seconds)

    async def look_again(self) -> None:
        """After the storm: each owner asks for each of the tasks once more at each gateway."""
        tasks = [task for known in accepted(self._client.asked).values() for task in known]
        queue = [(task, gateway) for task in tasks for gateway in self._gateways]

        async def work() -> None:
            while queue:
                task, gateway = queue.pop()
                await self._client.ask(task.owner, gateway, "tasks/get", task.id, Why.LAST)

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(work())

    def _any(self) -> Seat:
        """Some gateway; one that is up, if any is."""
        return self._rng.choice([seat for seat in self._gateways if seat.up.is_set()] or [*self._gateways])
