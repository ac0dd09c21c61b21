"""The reading of the suite's rows: what makes a run fail, and what may not."""

import json
from pathlib import Path

import pytest

from tests.conformance.catalog import CORE, TASKS, Expectation
from tests.conformance.reading import Verdict, judge, read_rows
from tests.conformance.run import table

EXPECTED = Expectation(
    successes={"server-one": 2, "tasks-two": 1, "tasks-quiet": 0},
    accepted={("server-one", "optional"): "INFO", ("tasks-quiet", "tasks-quiet"): "SKIPPED"},
)


def as_written(check: str, status: str) -> dict[str, object]:
    """A row with what the suite writes beside the parts that are read."""
    row: dict[str, object] = {"id": check, "name": check, "description": "", "status": status, "specReferences": []}
    return row if status == "SUCCESS" else row | {"errorMessage": f"why {check} is {status}"}


def write(results: Path, scenario: str, *rows: tuple[str, str]) -> Path:
    """Write a result file as the suite does; a row is (check, status)."""
    folder = results / f"server-{scenario}-2026-11-29T17-31-56-194Z"
    folder.mkdir()
    file = folder / "checks.json"
    file.write_text(json.dumps([as_written(check, status) for check, status in rows]))
    return file


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run in which everything is as it must be."""
    write(tmp_path, "server-one", ("a", "SUCCESS"), ("wire-schema-valid", "SUCCESS"), ("optional", "INFO"))
    write(tmp_path, "tasks-two", ("b", "SUCCESS"))
    write(tmp_path, "tasks-quiet", ("tasks-quiet", "SKIPPED"))
    return tmp_path


def verdict(results: Path) -> Verdict:
    return judge(read_rows(results), EXPECTED)


def problems(results: Path) -> dict[str, str]:
    return {outcome.scenario: outcome.problem for outcome in verdict(results).outcomes if outcome.problem}


def rewrite(results: Path, scenario: str, *rows: tuple[str, str]) -> None:
    (file,) = results.glob(f"server-{scenario}-*/checks.json")
    file.unlink()
    file.parent.rmdir()
    write(results, scenario, *rows)


def test_what_only_tells_of_the_traffic_is_no_row_unless_it_is_a_failure(tmp_path: Path) -> None:
    expected = Expectation(successes={"auth/one": 1}, told=frozenset({"traffic"}))
    folder = tmp_path / "auth" / "one-2026-11-29T17-31-56-194Z"
    folder.mkdir(parents=True)
    for status, good in (("INFO", True), ("FAILURE", False)):
        rows = [as_written("traffic", status), as_written("a", "SUCCESS")]
        (folder / "checks.json").write_text(json.dumps(rows))
        found = judge(read_rows(tmp_path), expected)
        assert (found.ok, found.succeeded) == (good, 1)


def test_a_good_run_passes(results: Path) -> None:
    assert verdict(results).ok
    assert verdict(results).succeeded == EXPECTED.total == 3


def test_accepted_rows_are_shown_and_not_counted(results: Path) -> None:
    accepted = [(row.check, row.status) for outcome in verdict(results).outcomes for row in outcome.accepted]
    assert accepted == [("optional", "INFO"), ("tasks-quiet", "SKIPPED")]


@pytest.mark.parametrize("status", ["FAILURE", "WARNING", "SKIPPED", "INFO", "a status of tomorrow"])
def test_any_row_but_a_success_fails(results: Path, status: str) -> None:
    rewrite(results, "tasks-two", ("b", "SUCCESS"), ("c", status))
    assert problems(results) == {"tasks-two": f"1 {status}"}


def test_a_skipped_scenario_fails(results: Path) -> None:
    rewrite(results, "tasks-two", ("tasks-two", "SKIPPED"))
    assert problems(results) == {"tasks-two": "1 SKIPPED"}


def test_an_accepted_row_has_one_status_only(results: Path) -> None:
    rewrite(results, "server-one", ("a", "SUCCESS"), ("b", "SUCCESS"), ("optional", "WARNING"))
    assert problems(results) == {"server-one": "1 WARNING"}


def test_an_accepted_row_belongs_to_its_scenario(results: Path) -> None:
    rewrite(results, "tasks-two", ("b", "SUCCESS"), ("optional", "INFO"))
    assert problems(results) == {"tasks-two": "1 INFO"}


@pytest.mark.parametrize("scenario", ["server-one", "tasks-two", "tasks-quiet"])
def test_a_missing_file_fails(results: Path, scenario: str) -> None:
    (file,) = results.glob(f"server-{scenario}-*/checks.json")
    file.unlink()
    assert problems(results) == {scenario: "did not run"}


def test_a_run_that_wrote_nothing_fails(tmp_path: Path) -> None:
    assert problems(tmp_path / "absent") == dict.fromkeys(EXPECTED.successes, "did not run")


@pytest.mark.parametrize("scenario", ["server-one", "tasks-quiet"])
def test_a_scenario_without_rows_fails(results: Path, scenario: str) -> None:
    rewrite(results, scenario)
    assert problems(results) == {scenario: "did not run"}


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"id": "a"}]', "[1]"])
def test_an_unreadable_file_fails(results: Path, text: str) -> None:
    (file,) = results.glob("server-tasks-two-*/checks.json")
    file.write_text(text)
    assert problems(results) == {"tasks-two": "1 UNREADABLE"}


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_successes_fails(results: Path, count: int) -> None:
    rewrite(results, "server-one", *[(f"check-{n}", "SUCCESS") for n in range(count)])
    assert problems(results) == {"server-one": f"{count} checks succeeded instead of 2"}


def test_the_right_sum_from_the_wrong_scenarios_fails(results: Path) -> None:
    rewrite(results, "server-one", ("a", "SUCCESS"))
    rewrite(results, "tasks-two", ("b", "SUCCESS"), ("c", "SUCCESS"))
    assert verdict(results).succeeded == EXPECTED.total
    assert problems(results).keys() == {"server-one", "tasks-two"}


def test_an_unknown_scenario_fails(results: Path) -> None:
    write(results, "brand-new", ("a", "SUCCESS"))
    assert problems(results) == {"brand-new": "not in the catalogue"}


def test_the_table_shows_why(results: Path) -> None:
    rewrite(results, "tasks-two", ("b", "SUCCESS"), ("c", "FAILURE"))
    lines = table("tasks", verdict(results), EXPECTED)
    assert "tasks-two     1 of  1  FAILED: 1 FAILURE" in lines
    assert "    FAILURE c: why c is FAILURE" in lines
    assert lines[-2] == "tasks: 3 of 3 checks succeeded, FAILED in 1 scenarios"


def test_the_catalogue_adds_up() -> None:
    assert (CORE.total, len(CORE.successes)) == (152, 40)
    assert (TASKS.total, len([count for count in TASKS.successes.values() if count])) == (44, 9)
