"""A small lawful history, told by all three witnesses, and ways to bend one of the accounts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from chaos.effects import Effect, Event
from chaos.evidence import Change, Evidence, Input, Row, Store
from chaos.history import EXTERNAL, Exchange
from chaos.oracle import judge

JSON = Any

TASK = "tsk_a"
LABEL = "one_question-1"
QUESTION = {"method": "elicitation/create", "params": {"message": "name?"}}
RUN = "r2"
"""The run that came to the end: the second one, after the answer."""


def instant(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000Z"


def task(status: str = "working", second: int = 1, **more: JSON) -> JSON:
    """A task as a server shows it, last updated at `second`."""
    head = {"taskId": TASK, "status": status, "createdAt": instant(1), "lastUpdatedAt": instant(second), "ttlMs": None}
    return {**head, **more}


def call(received: float = 1, label: str = LABEL, kind: str = "one_question", **more: JSON) -> Exchange:
    params = {"name": kind, "arguments": {"label": label}}
    return Exchange("server-0", "tools/call", params, 0, received, **({"result": task()} | more))


def get(
    sent: float, shown: JSON = None, *, server: str = "server-0", received: float = 0, error: JSON = None
) -> Exchange:
    """A read that takes half a second unless `received` is given."""
    return Exchange(server, "tasks/get", {"taskId": TASK}, sent, received or sent + 0.5, shown, error)


def update(sent: float, text: str, *, key: str = "name", acknowledged: bool = True) -> Exchange:
    params = {"taskId": TASK, "inputResponses": {key: {"action": "accept", "content": {"text": text}}}}
    exchange = Exchange("server-0", "tasks/update", params, sent)
    return replace(exchange, received=sent + 0.5, result={}) if acknowledged else exchange


def cancel(sent: float) -> Exchange:
    return Exchange("server-0", "tasks/cancel", {"taskId": TASK}, sent, sent + 0.5, {})


def said(sent: float, text: str, *, code: int = 204, heard: bool = True) -> Exchange:
    """Another system's word about the work "render"."""
    exchange = Exchange("server-0", EXTERNAL, {"taskId": TASK, "name": "render", "text": text}, sent)
    if not heard:
        return exchange
    answer: dict[str, JSON] = {"result": {}} if code == 204 else {"error": {"code": code, "message": ""}}
    return replace(exchange, received=sent + 0.5, **answer)


def asking(second: int = 2) -> JSON:
    return task("input_required", second, inputRequests={"name": QUESTION})


def completed(second: int = 4, **structured: JSON) -> JSON:
    content = {"run": RUN, "label": LABEL, "answers": {"name": "Ada"}, "values": {}, **structured}
    return task("completed", second, result={"content": [], "structuredContent": content})


def effect(
    event: Event, run: str = RUN, name: str = "", value: JSON = None, *, attempt: int = 1, once: bool = False
) -> Effect:
    return Effect(event, TASK, run, attempt, 100, name, once, value)


EXCHANGES = (call(), get(2, asking()), update(3, "Ada"), get(4, task(second=3)), get(5, completed()))
EFFECTS = (effect("start", "r1"), effect("start"), effect("answer", name="name", value="Ada"), effect("end"))
CHANGES = (
    Change("working", "input_required", 1, 2, 1, 2),
    Change("input_required", "working", 2, 3, 2, 3),
    Change("working", "completed", 3, 4, 3, 4),
)
ROW = Row(TASK, "one_question", LABEL, "completed", 4, 4, completed()["result"], None, CHANGES)
INPUTS = {(TASK, "name"): Input("answered", "Ada")}
LAWFUL = Evidence(EXCHANGES, EFFECTS, Store({TASK: ROW}, INPUTS))


def broken(evidence: Evidence) -> Mapping[str, list[str]]:
    """The rules that the evidence breaks, each with what was found."""
    found: dict[str, list[str]] = {}
    for violation in judge(evidence):
        found.setdefault(violation.rule, []).append(violation.what)
    return found


def told(*exchanges: Exchange, instead: tuple[Exchange, ...] = EXCHANGES) -> Mapping[str, list[str]]:
    """What breaks if clients were told this too; or this alone, if `instead` is empty."""
    return broken(replace(LAWFUL, exchanges=(*instead, *exchanges)))


def again(*names: str, once: bool = False) -> tuple[Effect, ...]:
    """The run that came to the end as a second attempt, which ran the steps `names`; without its end."""
    return (effect("start", attempt=2), *(effect("step", name=name, attempt=2, once=once) for name in names))


END = (effect("answer", name="name", value="Ada", attempt=2), effect("end", attempt=2))


def done(
    *effects: Effect, before: tuple[Effect, ...] = EFFECTS, values: dict[str, JSON] | None = None
) -> Mapping[str, list[str]]:
    """What breaks if tools did this too, after `before`, and the result speaks of these `values` of steps.

    The timeline knows of a death for each attempt but the first.
    """
    exchanges = (*EXCHANGES[:-1], get(5, completed(values=values or {})))
    deaths = max((each.attempt - 1 for each in before if each.run == RUN), default=0)
    store = Store({TASK: replace(ROW, events={"death": deaths})}, INPUTS)
    return broken(replace(LAWFUL, exchanges=exchanges, effects=(*before, *effects), store=store))


def stored(**changed: JSON) -> Mapping[str, list[str]]:
    """What breaks if the task's row is changed so."""
    return rows(replace(ROW, **changed))


def rows(*rows: Row, **more: JSON) -> Mapping[str, list[str]]:
    """What breaks if the store holds these tasks, and is otherwise as `more` says."""
    store = Store({row.id: row for row in rows}, INPUTS)
    return broken(replace(LAWFUL, store=replace(store, **more)))
