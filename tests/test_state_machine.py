"""What the documentation shows of the state machine is the machine, and the drawing of it can be read."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from docs.make_state_machine import (
    DRAWING,
    LANES,
    PAGE,
    WHEN,
    Incomplete,
    drawn,
    made,
    table,
    with_table,
)
from perdure.domain.lifecycle import TRANSITIONS, Kind
from perdure.domain.model import Status

ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| `(\w+)` \| \S", re.MULTILINE)
SVG = "{http://www.w3.org/2000/svg}"
SIZE = 13
"""The height of a label's letters."""
ARROWS = sorted((str(status), str(kind), str(target)) for (status, kind), target in TRANSITIONS.items())

Box = tuple[float, float, float, float]


def drawing() -> ET.Element:
    return ET.fromstring(DRAWING.read_text("utf-8"))


# -- what is committed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [PAGE, DRAWING], ids=lambda path: path.name)
def test_the_committed_file_is_what_the_machine_makes_of_it(path: Path) -> None:
    assert path.read_text("utf-8") == made()[path], f"{path.name} is out of date: run `make docs`"


def test_the_rows_of_the_page_are_the_arrows_of_the_machine() -> None:
    assert sorted(ROW.findall(PAGE.read_text("utf-8"))) == ARROWS


def test_the_labels_of_the_drawing_are_the_arrows_of_the_machine() -> None:
    drawn = [
        (lane.attrib["data-from"], label.text, lane.attrib["data-to"])
        for lane in drawing().iter(f"{SVG}g")
        for label in lane.iter(f"{SVG}text")
    ]
    assert sorted(drawn, key=str) == ARROWS


def test_the_drawing_has_a_box_for_each_status_and_a_strong_one_for_the_final_ones() -> None:
    boxes = [rect.attrib["class"] for rect in drawing().iter(f"{SVG}rect") if "box" in rect.attrib["class"]]
    names = [text.text for text in drawing().iter(f"{SVG}text") if text.get("class") == "status"]
    assert dict(zip(names, boxes, strict=True)) == {
        str(status): "box final" if status.terminal else "box" for status in Status
    }


def test_the_page_shows_the_drawing_and_the_drawing_loads_nothing() -> None:
    assert f"]({DRAWING.name})" in PAGE.read_text("utf-8")
    text = DRAWING.read_text("utf-8")
    assert re.findall(r"https?://[^\"'\s]+|@import|href|<script", text) == [SVG.strip("{}")]


# -- whether it can be read --------------------------------------------------------------------------------------------


def shapes(svg: ET.Element) -> Iterator[tuple[str, Box]]:
    """Each box and each label outside them, with the room that it takes.

    A letter of a monospaced font is as wide as 0.6 of its height.
    """
    for rect in svg.iter(f"{SVG}rect"):
        if "box" in rect.attrib["class"]:
            left, top, width, height = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            yield "a box", (left, top, left + width, top + height)
    for text in svg.iter(f"{SVG}text"):
        if text.get("class") != "status":
            name, x, y = text.text or "", float(text.attrib["x"]), float(text.attrib["y"])
            width = 0.6 * SIZE * len(name)
            left = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[text.attrib["text-anchor"]]
            yield name, (left, y - 0.75 * SIZE, left + width, y + 0.25 * SIZE)


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def test_no_label_of_the_drawing_lies_on_another_or_on_a_box_or_sticks_out() -> None:
    svg = drawing()
    assert f"font-size: {SIZE}px" in DRAWING.read_text("utf-8")
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    found = list(shapes(svg))
    outside = [name for name, (left, top, right, low) in found if min(left, top) < 0 or right > width or low > height]
    assert outside == []
    assert [(one, other) for (one, a), (other, b) in combinations(found, 2) if overlap(a, b)] == []


# -- what the generator refuses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "kind"), TRANSITIONS)
def test_every_arrow_has_a_sentence(status: Status, kind: Kind) -> None:
    assert WHEN.get((status, kind)), f"say in docs/make_state_machine.py when {kind} leads out of {status}"


def test_no_sentence_is_about_an_arrow_that_is_gone() -> None:
    assert set(WHEN) <= set(TRANSITIONS)


def test_an_arrow_without_a_sentence_is_named() -> None:
    said = {arrow: sentence for arrow, sentence in WHEN.items() if arrow != (Status.WORKING, Kind.ASK)}
    with pytest.raises(Incomplete, match="working --ask--> input_required has no sentence"):
        table(TRANSITIONS, said)


def test_an_arrow_between_two_statuses_that_no_lane_joins_is_named() -> None:
    arrows = {**TRANSITIONS, (Status.FAILED, Kind.RESUME): Status.WORKING}
    with pytest.raises(Incomplete, match="failed --resume--> working has no lane"):
        drawn(arrows, LANES)


def test_arrows_that_share_a_lane_have_labels_of_their_own() -> None:
    arrows = {**TRANSITIONS, (Status.WORKING, Kind.PARTIAL): Status.INPUT_REQUIRED}
    lane = re.search(r'data-from="working" data-to="input_required">.*?</g>', drawn(arrows, LANES), re.DOTALL)
    assert lane is not None
    assert re.findall(r">(\w+)</text>", lane[0]) == ["ask", "partial"]


@pytest.mark.parametrize("page", ["", "a page", PAGE.read_text("utf-8") * 2], ids=["empty", "without marks", "twice"])
def test_a_page_without_one_place_for_the_table_is_refused(page: str) -> None:
    with pytest.raises(Incomplete, match="once each"):
        with_table(page, "a table")


def test_only_the_table_of_a_page_is_written() -> None:
    before = PAGE.read_text("utf-8")
    after = with_table(before, "a table")
    assert "\na table\n" in after
    assert with_table(after, table(TRANSITIONS, WHEN)) == before
