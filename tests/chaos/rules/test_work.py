"""Words of other systems that did not count, and handles that changed."""

from collections.abc import Mapping
from dataclasses import replace

from chaos.evidence import Store, Work
from chaos.history import FAILED, TIMEOUT, Exchange
from tests.chaos.support import EFFECTS, EXCHANGES, INPUTS, LAWFUL, ROW, TASK, broken, completed, effect, get, said

HANDLE = "a handle stays"
WORD = "no word of another system is lost"


def worked(*words: Exchange, got: str | None, kept: Work, kind: str = "outsourced") -> Mapping[str, list[str]]:
    """What breaks if other systems said `words` of the work, the tool `got` this, and the store holds `kept`."""
    value = () if got is None else (effect("value", name="render", value=got),)
    effects = (EFFECTS[0], effect("handed", "r1", "render", "h"), EFFECTS[1], *value, *EFFECTS[2:])
    shown = completed(values={} if got is None else {"render": got})
    store = Store({TASK: replace(ROW, kind=kind)}, INPUTS, {(TASK, "render"): kept})
    called = replace(EXCHANGES[0], params={**EXCHANGES[0].params, "name": kind})
    exchanges = (called, *EXCHANGES[1:-1], *words, get(5, shown))
    return broken(replace(LAWFUL, exchanges=exchanges, effects=effects, store=store))


def test_the_first_word_counts() -> None:
    assert not worked(said(2, "x"), said(3, "x"), said(3, "y", code=409), got="x", kept=Work("done", "x"))
    failed = f"{FAILED}: no memory"
    assert not worked(said(2, failed), got=failed, kept=Work("failed", failed))


def test_a_word_that_was_accepted_and_did_not_count_is_found() -> None:
    found = worked(said(2, "x"), said(3, "y", heard=False), got="y", kept=Work("done", "y"))
    assert "['x'] were accepted for 'render', and the store holds" in found[WORD][0]
    assert "were accepted" in worked(said(2, "x"), got=None, kept=Work("started"))[WORD][0]


def test_two_words_that_were_both_accepted_are_found() -> None:
    assert worked(said(2, "x"), said(3, "y"), got="x", kept=Work("done", "x"))[WORD]


def test_a_word_that_nobody_heard_may_count() -> None:
    assert not worked(said(2, "x", heard=False), said(3, "y", code=409), got="x", kept=Work("done", "x"))
    assert not worked(said(2, "x", code=503), said(3, "y", code=409), got="x", kept=Work("done", "x"))


def test_a_word_that_counted_and_was_refused_is_found() -> None:
    assert "was refused" in worked(said(2, "x", code=409), got="x", kept=Work("done", "x"))[WORD][0]


def test_a_word_that_nobody_said_is_found() -> None:
    assert "which nobody said" in worked(said(2, "y", heard=False), got="x", kept=Work("done", "x"))[WORD][0]


def test_a_word_that_the_store_does_not_hold_is_found() -> None:
    assert "and the store holds" in worked(said(2, "x", heard=False), got="x", kept=Work("started"))[WORD][0]


def test_only_a_tool_with_a_timeout_may_go_on_without_a_word() -> None:
    late = said(3, "x", code=409)
    assert not worked(late, got=TIMEOUT, kept=Work("failed", TIMEOUT), kind="hurried")
    assert worked(late, got=TIMEOUT, kept=Work("failed", TIMEOUT))[WORD] == [
        "the tool went on without a word of 'render'"
    ]
    assert worked(said(3, "x"), got=TIMEOUT, kept=Work("failed", TIMEOUT), kind="hurried")[WORD]


def test_work_that_is_handed_over_under_two_handles_is_found() -> None:
    handed = (effect("handed", "r1", "render", "h"), effect("handed", "r1", "render", "h"))
    assert not broken(replace(LAWFUL, effects=(EFFECTS[0], *handed, *EFFECTS[1:])))
    other = effect("withdrawn", "r1", "render", "i")
    assert "under 2 handles" in broken(replace(LAWFUL, effects=(EFFECTS[0], *handed, other, *EFFECTS[1:])))[HANDLE][0]
