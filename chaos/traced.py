"""What the tools are made of: a run that leaves traces, and the verbs with traces around them.

Each run of a tool draws a token, writes to the journal when it begins and as the very last thing before it ends, and
puts the token into its result; so what the store holds names the one run that counts. What it was answered and what its
steps came to goes into both as well.

CHAOS_JOURNAL is the journal's path.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from perdure import Elicit, Finished, Handle, StepFailed, StepInterrupted, SyncTaskContext, TaskContext

from .effects import Effect, Event, Journal, outbox
from .history import FAILED, TIMEOUT

__all__ = ["Result", "Run", "asked", "failing", "handed_over", "journal", "slept", "stepped"]

Result = dict[str, Any]

_path: Final = Path(os.environ["CHAOS_JOURNAL"])
journal: Final = Journal(_path)


class Text(BaseModel):
    text: str


class Run:
    """One run of a tool, and its traces."""

    def __init__(self, task: TaskContext | SyncTaskContext, label: str) -> None:
        self._task = task
        self.label = label
        self.token = secrets.token_hex(8)
        self._answers: Result = {}
        self._values: Result = {}
        self.note("start")

    def note(self, event: Event, name: str = "", value: object = None, *, once: bool = False) -> None:
        task = self._task
        at = time.monotonic()
        journal.write(Effect(event, task.id, self.token, task.attempt, os.getpid(), name, once, value, at))

    def answered(self, key: str, value: str | None) -> None:
        """`value` None: nobody answered in time."""
        self._answers[key] = value
        self.note("answer", key, value)

    def passed(self, step: str, value: str | None) -> None:
        """`value` None: the step was interrupted."""
        self._values[step] = value
        self.note("value", step, value)

    def end(self) -> Result:
        self.note("end")
        return {"run": self.token, "label": self.label, "answers": self._answers, "values": self._values}


async def asked(run: Run, task: TaskContext, about: str, *keys: str, within: float | None = None) -> dict[str, str]:
    """Ask for all of `keys` at once; what was answered."""
    if within is not None:
        for key in keys:
            run.note("timer", key, within)
    found = await task.ask({key: Elicit(f"{about}: {key}?", Text) for key in keys}, timeout=within)
    texts: dict[str, str] = {}
    for key, answer in found.items():
        if answer.data is not None:
            texts[key] = answer.data.text
        elif within is not None:
            run.note("rang", key)
        run.answered(key, texts.get(key))
    return texts


async def slept(run: Run, task: TaskContext, name: str, seconds: float) -> None:
    """A sleep. `name` is for the journal."""
    run.note("timer", name, seconds)
    await task.sleep(seconds)
    run.note("rang", name)


async def stepped(run: Run, task: TaskContext, name: str, seconds: float = 0.3, *, once: bool = False) -> None:
    """A step that takes a while, leaves a line while it is inside, and comes to something new each time."""

    async def work() -> str:
        run.note("step", name, once=once)
        await asyncio.sleep(seconds)
        return secrets.token_hex(4)

    try:
        value = await task.step(name, work, at_most_once=once)
    except StepInterrupted:
        value = None
    run.passed(name, value)


async def failing(run: Run, task: TaskContext, name: str) -> None:
    """A step that fails, which is on record like a result."""

    def work() -> None:
        run.note("step", name)
        raise ValueError(FAILED)

    with contextlib.suppress(StepFailed):
        await task.step(name, work)
    run.passed(name, FAILED)


async def handed_over(
    run: Run, task: TaskContext, name: str, seconds: float | None = None, *, minds: bool, watched: bool = False
) -> None:
    """External work: the journal is how the other system hears of it.

    `minds`: it is told if nobody waits any more. `watched`: it does not report by itself.
    """

    def start(handle: Handle) -> None:
        run.note("handed", name, handle.id)

    def withdraw(handle: Handle) -> None:
        run.note("withdrawn", name, handle.id)

    cancel, poll = withdraw if minds else None, _look if watched else None
    if seconds is not None:
        run.note("timer", name, seconds)
    try:
        value = await task.external(name, start, cancel=cancel, poll=poll, every="300ms", timeout=seconds)
    except StepFailed as failed:
        value = TIMEOUT if failed.type == "TimeoutError" else f"{FAILED}: {failed.message}"
    if value == TIMEOUT:
        run.note("rang", name)
    run.passed(name, value)


def _look(handle: Handle) -> Finished | None:
    try:
        text = (outbox(_path) / handle.id).read_text()
    except FileNotFoundError:
        return None
    failed, _, message = text.partition(": ")
    return Finished(error=message, type="ExternalFailed") if failed == FAILED else Finished(text)
