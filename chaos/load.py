"""What the clients do: create tasks of every kind, poll them, answer what they ask, cancel some. All of it bounded.

Each request goes to some server, as by clients that know the list of replicas. Answers are given late, one by one, in
part, twice, and by two clients at once; so that parked tasks and half-answered ones meet every kind of fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from .client import Client, Unanswered
from .history import TERMINAL
from .kinds import KINDS
from .processes import Fleet, Seat

__all__ = ["Bounds", "Load"]

JSON = Any


_CANCELLED: Final = 0.12
"""How many of the tasks somebody cancels."""
_KEYED: Final = 0.4
"""How many calls carry an idempotency key."""
_PERSEVERANCE: Final = 5
"""Calls under one key of which none is answered, before that client gives up."""
_TENANTS: Final = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Bounds:
    """`rate`: tasks a second. `most`: how many there may be in all. `open`: how many may be unfinished at once.

    `readers`, `creators`: how many clients poll, and how many create, each with a request on its way at a time.
    """

    rate: float
    most: int
    open: int = 100
    readers: int = 6
    creators: int = 3


@dataclass(slots=True, eq=False)
class _Task:
    """As the clients know it."""

    id: str
    cancels: bool
    patience: float
    """The time before which nobody answers it."""


class Load:
    """The clients. `create` and `tend` run side by side until `finish` is called and nothing is left to do."""

    def __init__(
        self, client: Client, fleet: Fleet, rng: random.Random, bounds: Bounds, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._fleet = fleet
        self._rng = rng
        self.bounds = bounds
        self._now = now
        self._open: list[_Task] = []
        self._over: list[str] = []
        self._made = 0
        self._coming = 0
        """Calls that may yet become tasks to look after."""
        self._calm = False

    @property
    def unfinished(self) -> int:
        return len(self._open)

    @property
    def made(self) -> int:
        """How many calls were made that may have become tasks."""
        return self._made

    def finish(self) -> None:
        """No new tasks, no more tricks; what is asked is answered."""
        self._calm = True

    # -- creating ------------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Call tools at one creator's part of the rate, until it is time to finish."""
        names = list(KINDS)
        shares = [kind.share for kind in KINDS.values()]
        while not self._calm and self._made < self.bounds.most:
            await asyncio.sleep(self._rng.expovariate(self.bounds.rate / self.bounds.creators))
            if len(self._open) < self.bounds.open and not self._calm:
                (name,) = self._rng.choices(names, shares)
                self._coming += 1
                try:
                    with contextlib.suppress(Unanswered):
                        await self._create_one(name)
                finally:
                    self._coming -= 1

    async def _create_one(self, name: str) -> None:
        self._made += 1
        arguments = {"label": f"{name}-{self._made}", **KINDS[name].arguments(self._rng)}
        call = partial(self._call, name, arguments, self._rng.choice(_TENANTS))
        handle = await (self._keyed(call) if self._rng.random() < _KEYED else call(None))
        cancels = self._rng.random() < _CANCELLED
        patience = self._now() + (self._rng.uniform(0, 8) if self._rng.random() < 0.5 else 0)
        self._open.append(_Task(handle["taskId"], cancels, patience))

    async def _call(self, name: str, arguments: dict[str, JSON], tenant: str, key: str | None) -> JSON:
        seat = self._any()
        return await self._client.call(seat.name, seat.port, name, arguments, tenant=tenant, key=key)

    async def _keyed(self, call: Callable[[str], Awaitable[JSON]]) -> JSON:
        """Call until it is answered; some do so again after that, and some twice at once."""
        key = f"{self._rng.getrandbits(64):x}"
        for _ in range(_PERSEVERANCE):
            calls = [call(key) for _ in range(2 if self._rng.random() < 0.15 else 1)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            handles = [each for each in found if not isinstance(each, BaseException)]
            if handles:
                if self._rng.random() < 0.2:
                    await asyncio.sleep(self._rng.uniform(0, 2))
                    with contextlib.suppress(Unanswered):
                        await call(key)
                return handles[0]
            await asyncio.sleep(self._rng.uniform(0, 1))
        raise Unanswered

    # -- polling -------------------------------------------------------------------------------------------------------

    async def tend(self) -> None:
        """Look after whatever is open, until it is time to finish, and nothing is or is to come."""
        while self._open or self._coming or not self._calm:
            await asyncio.sleep(self._rng.uniform(0.02, 0.2))
            with contextlib.suppress(Unanswered):
                if self._open:
                    await self._look(self._rng.choice(self._open))
                if self._over and self._rng.random() < 0.2:
                    await self._get(self._rng.choice(self._over))

    async def read_all(self) -> None:
        """Read every task that is over once more."""
        queue = list(self._over)

        async def work() -> None:
            while queue:
                task_id = queue.pop()
                with contextlib.suppress(Unanswered):
                    await self._get(task_id)

        await asyncio.gather(*(work() for _ in range(self.bounds.readers)))

    async def _look(self, task: _Task) -> None:
        if task.cancels and not self._calm and self._rng.random() < 0.2:
            seat = self._any()
            await self._client.cancel(seat.name, seat.port, task.id)
        found = await self._get(task.id)
        if found["status"] in TERMINAL:
            if task in self._open:  # another client may have seen it first
                self._open.remove(task)
                self._over.append(task.id)
        elif found["status"] == "input_required" and (self._calm or self._now() > task.patience):
            await self._answer(task, list(found["inputRequests"]))

    async def _get(self, task_id: str) -> JSON:
        seat = self._any()
        return await self._client.get(seat.name, seat.port, task_id)

    async def _answer(self, task: _Task, keys: list[str]) -> None:
        chosen = [key for key in keys if self._calm or self._rng.random() < 0.7] or keys[:1]
        # Usually one client answers; sometimes two at once, with different words, on two servers.
        clients = 2 if self._rng.random() < 0.15 else 1
        await asyncio.gather(*(self._update(task, chosen) for _ in range(clients)))
        if self._rng.random() < 0.2:  # the first answer wins: this one comes too late
            await self._update(task, chosen)

    async def _update(self, task: _Task, keys: list[str]) -> None:
        seat = self._any()
        texts = {key: f"{key} {self._rng.getrandbits(48):x}" for key in keys}
        with contextlib.suppress(Unanswered):
            await self._client.update(seat.name, seat.port, task.id, texts)

    def _any(self) -> Seat:
        """Some server; one that is up, if any is."""
        servers = self._fleet.servers
        return self._rng.choice([seat for seat in servers if seat.up.is_set()] or servers)
