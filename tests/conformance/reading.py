"""Reads the suite's result files and judges them against the catalogue; starts nothing and prints nothing.

The suite writes `server-<scenario>-<time>/checks.json` for every scenario that it ran, without `server-` if it ran a
client: a list of rows, each with the id of a check and a status. Only SUCCESS counts. FAILURE, WARNING, SKIPPED and
INFO all count against a scenario unless the catalogue accepts that very row, and so does a file that is missing,
unreadable or empty: silence is how a skipped scenario looks.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tests.conformance.catalog import Expectation

SUCCESS = "SUCCESS"
INFO = "INFO"
UNREADABLE = "UNREADABLE"

_FOLDER = re.compile(r"(server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True, slots=True)
class Row:
    scenario: str
    check: str
    status: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario: how many of its checks succeeded, and the rows that did not.

    `problem` says what is wrong, in a few words, and is empty when all is well.
    """

    scenario: str
    expected: int
    succeeded: int
    accepted: Sequence[Row]
    refused: Sequence[Row]
    problem: str


@dataclass(frozen=True, slots=True)
class Verdict:
    outcomes: Sequence[Outcome]

    @property
    def ok(self) -> bool:
        return not any(outcome.problem for outcome in self.outcomes)

    @property
    def succeeded(self) -> int:
        return sum(outcome.succeeded for outcome in self.outcomes)


class _Check(BaseModel):
    """The parts of a row that matter here; the suite writes more."""

    id: str
    status: str
    message: str = Field(default="", alias="errorMessage")


_CHECKS = TypeAdapter(list[_Check])


def read_rows(folder: Path) -> list[Row]:
    """All rows under `folder`, of as many runs of the suite as wrote there."""
    return [row for file in sorted(folder.rglob("checks.json")) for row in _read_file(folder, file)]


def _read_file(folder: Path, file: Path) -> list[Row]:
    name = str(file.parent.relative_to(folder))
    match = _FOLDER.fullmatch(name)
    scenario = match["scenario"] if match else name
    try:
        checks = _CHECKS.validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        return [Row(scenario, file.name, UNREADABLE, str(error))]
    return [Row(scenario, check.id, check.status, check.message) for check in checks]


def judge(rows: Iterable[Row], expectation: Expectation) -> Verdict:
    """Hold `rows` against what the catalogue expects; scenarios that it does not know are a problem too."""
    by_scenario: dict[str, list[Row]] = {scenario: [] for scenario in expectation.successes}
    for row in rows:
        if row.status != INFO or row.check not in expectation.told:
            by_scenario.setdefault(row.scenario, []).append(row)
    return Verdict([_judge_scenario(scenario, found, expectation) for scenario, found in by_scenario.items()])


def _judge_scenario(scenario: str, rows: Sequence[Row], expectation: Expectation) -> Outcome:
    others = [row for row in rows if row.status != SUCCESS]
    accepted = [row for row in others if expectation.accepted.get((row.scenario, row.check)) == row.status]
    refused = [row for row in others if row not in accepted]
    expected = expectation.successes.get(scenario)
    succeeded = len(rows) - len(others)
    problem = _problem(rows, refused, expected, succeeded)
    return Outcome(scenario, expected or 0, succeeded, accepted, refused, problem)


def _problem(rows: Sequence[Row], refused: Sequence[Row], expected: int | None, succeeded: int) -> str:
    if not rows:
        return "did not run"
    if expected is None:
        return "not in the catalogue"
    if refused:
        return " and ".join(f"{sum(row.status == status for row in refused)} {status}" for status in _statuses(refused))
    if succeeded != expected:
        return f"{succeeded} checks succeeded instead of {expected}"
    return ""


def _statuses(rows: Iterable[Row]) -> list[str]:
    return sorted({row.status for row in rows})
