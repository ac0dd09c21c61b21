"""Perdure's own words about a task that it fails are told from a tool's."""

import pytest

from perdure.domain import verdicts
from perdure.domain.errors import InputKeyReused, JournalMismatch, StepFailed

SENTENCES = {name: value for name, value in vars(verdicts).items() if name.isupper() and isinstance(value, str)}
FIELDS = dict.fromkeys(("deaths", "most"), 3) | dict.fromkeys(("place", "recorded", "found", "key"), "a\nb{c}")


@pytest.mark.parametrize("template", SENTENCES.values(), ids=SENTENCES)
def test_every_sentence_is_known_whatever_is_in_its_fields(template: str) -> None:
    said = template.format(**FIELDS, verb="step", name="charge", type="TypeError")
    assert verdicts.is_ours(said)
    assert not verdicts.is_ours(f"{said} more")
    assert not verdicts.is_ours(f"The tool: {said}")


@pytest.mark.parametrize("error", [InputKeyReused("a"), JournalMismatch("1", "has step 'a'", "ended")])
def test_errors_that_fail_a_task_say_such_a_sentence(error: Exception) -> None:
    assert verdicts.is_ours(str(error))


@pytest.mark.parametrize("said", ["", "Internal error.", str(StepFailed("a", "ValueError", "secret"))])
def test_nothing_else_is(said: str) -> None:
    assert not verdicts.is_ours(said)
