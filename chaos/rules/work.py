"""External work: the first word counts, and whoever said it hears so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.case import Case, Found
from chaos.evidence import Work
from chaos.history import FAILED, TIMEOUT, Word
from chaos.kinds import KINDS

__all__ = ["a_handle_stays", "no_word_is_lost"]


def a_handle_stays(case: Case) -> Found:
    """Whoever is told of the work again, because a worker died meanwhile, knows it by the same handle."""
    for task_id, name, effects in case.named("handed", "withdrawn"):
        handles = {each.value for each in effects}
        if len(handles) > 1:
            yield task_id, f"{name!r} was handed over under {len(handles)} handles"


def no_word_is_lost(case: Case) -> Found:
    """What was accepted first is what the tool got; and what it got, it was told, and the store holds."""
    for (task_id, name), kept in case.store.works.items():
        said = [word for word in case.words.get(task_id, ()) if word.name == name]
        accepted = {word.text for word in said if word.accepted}
        if accepted - {kept.text}:
            yield task_id, f"{sorted(accepted)} were accepted for {name!r}, and the store holds {kept}"
    for task_id, name, effects in case.named("value"):
        if (task_id, name) not in case.store.works:
            continue
        row = case.store.rows[task_id]
        kept = case.store.works[task_id, name]
        said = [word for word in case.words.get(task_id, ()) if word.name == name]
        for value in {each.value for each in effects}:
            yield from ((row.label, what) for what in _misheard(name, value, kept, said))
            if value == TIMEOUT and not KINDS[row.kind].impatient:
                yield row.label, f"the tool went on without a word of {name!r}"


def _misheard(name: str, value: str, kept: Work, said: Sequence[Word]) -> Iterator[str]:
    """What is wrong with a tool's having got `value`."""
    state = "failed" if value == TIMEOUT or value.startswith(FAILED) else "done"
    if kept != Work(state, value):
        yield f"the tool got {value!r} for {name!r}, and the store holds {kept}"
    own = [word for word in said if word.text == value]
    if value != TIMEOUT and not own:
        yield f"the tool got {value!r} for {name!r}, which nobody said"
    if any(word.refused for word in own):
        yield f"the tool got {value!r} for {name!r}, and who said so was refused"
