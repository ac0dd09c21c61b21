"""What others wrote is shown without what a terminal would obey, in the room that there is."""

import pytest

from perdure.ops import text


def test_text_of_others_is_text() -> None:
    evil = "a\x1b[31mb\x9bc\rd\u202ee\nf"
    assert text.line(evil) == "a [31mb c d e f"
    assert text.cleaned(f"  {evil}") == "  a [31mb c d e f"
    assert text.block(evil) == "a\ufffd[31mb\ufffdc\ufffdd\ufffde\nf"
    assert text.document(evil) == r'"a\u001b[31mb\u009bc\rd\u202ee\nf"'
    assert text.block("a\r\nb") == "a\nb"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.9, "0 s"), (59, "59 s"), (61, "1 min 01 s"), (7260, "2 h 01 min"), (200_000, "2 d 7 h"), (-1, "0 s")],
)
def test_lengths_of_time_are_said_in_their_two_largest_units(seconds: float, said: str) -> None:
    assert text.span(seconds) == said


@pytest.mark.parametrize(("columns", "said"), [(9, "漢字 text"), (8, "漢字 te…"), (4, "漢…"), (3, "漢…"), (2, "…")])
def test_a_line_is_cut_to_the_columns_that_it_takes(columns: int, said: str) -> None:
    assert text.within("漢字 text", columns) == said


def test_a_table_has_columns_and_nothing_in_it_that_a_terminal_would_obey() -> None:
    rows = [("a\x1b[2J", "b"), ("c", "")]
    assert list(text.table(("ID", "X"), rows, empty="none")) == ["ID     X", "a [2J  b", "c"]
    assert list(text.table(("ID", "X"), iter([]), empty="none")) == ["none"]
