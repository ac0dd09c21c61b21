"""The seam between a storm and a store: a `Ground` is a store and what lies beneath it.

The driver inflicts what the ground offers without knowing what it is; the oracle judges what it hands out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from chaos.evidence import Store
from chaos.interposer import Interposer
from chaos.logs import Known
from chaos.plan import Fault, Share

__all__ = ["Ground", "Site", "Trouble"]


@dataclass(frozen=True, slots=True)
class Site:
    """What a ground is made of. `mount`: whether it may mount a disk. `seats`: how many processes will use it."""

    scratch: Path
    interposer: Interposer | str
    mount: bool
    seats: int


@dataclass(frozen=True, slots=True)
class Trouble:
    """A kind of fault that is the store's own.

    `inflict` does it, undoes it whatever happens, and says whether anybody felt it. Faults that take turns share a
    lock: each takes the one of its seat, or the only one. `missing`: why there is none of it here.
    """

    share: Share
    inflict: Callable[[Fault], Coroutine[Any, Any, bool]]
    turns: Sequence[asyncio.Lock]
    missing: str | None = None

    @property
    def of_a_seat(self) -> bool:
        """Whether only one process feels it."""
        return len(self.turns) > 1

    def turn(self, fault: Fault) -> asyncio.Lock:
        return self.turns[fault.seat % len(self.turns)]


class Ground(Protocol):
    """A store and what lies beneath it.

    `kind`: in words. `own_clock`: whether time is the store's own, so that the processes' clocks must not matter.
    `environment`: for the processes. `secrets`: what no log may tell. `known`: what the processes' logs may complain
    of. `troubles`: what can be done to it, by the words of the report.
    """

    kind: str
    own_clock: bool
    environment: Mapping[str, str]
    secrets: Sequence[str]
    known: Known
    troubles: Mapping[str, Trouble]

    def prepared(self) -> AbstractAsyncContextManager[None]:
        """Whatever needs a running loop."""
        ...

    def url(self, seat: int) -> str:
        """How that process names the store."""
        ...

    async def audit(self) -> None:
        """Have the store note every change of a task from now on. Its tables are there once processes are up."""
        ...

    async def leases(self) -> set[int]:
        """The ids of the processes that have a lease; those that are known, if the store can't be asked just now."""
        ...

    async def working(self) -> int:
        """How many tasks are neither over nor waiting for an answer."""
        ...

    async def heal(self) -> None:
        """Everything beneath the store is in order again."""
        ...

    async def look(self) -> Store:
        """All that it holds, once all processes have ended."""
        ...

    def oddities(self) -> list[str]:
        """What the logs beneath the store tell and should not."""
        ...

    def keep(self, target: Path) -> None:
        """Copy it to where it outlives the storm."""
        ...
